# The tables' place in a document: between two marks that name the run. Text in, text out.
import argparse
from pathlib import Path

from otel_llmprism.testing.evaluation.suite import SuiteResult


def replace_section(path: Path, name: str, text: str) -> None:
    """Put `text` between the marks of that name; at the end of the document where it has none."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    whole = path.read_text(encoding="utf-8") if path.exists() else ""
    section = f"{begin}\n{text.strip()}\n{end}"
    if begin in whole and end in whole:
        before, _, rest = whole.partition(begin)
        whole = before + section + rest.partition(end)[2]
    else:
        whole = f"{whole.rstrip()}\n\n{section}\n"
    path.write_text(whole, encoding="utf-8")


def describe_run(options: argparse.Namespace, result: SuiteResult) -> str:
    """Return what the figures depend on: engine, split, machine, and what could not be done."""
    machines = result.machines
    lines = [f"Engine {options.engine}, split `{options.split}`, {len(result.scores)} recordings."]
    if machines:
        first, loads = machines[0], [float(str(machine["load_before"])) for machine in machines]
        lines.append(
            f"{first['processor']}, {first['cores']} cores, Linux {first['kernel']}, Python "
            f"{first['python']}; load average before each recording {min(loads):g} to {max(loads):g}."
        )
    lines += [f"Not judged: {text}" for text in result.missing]
    return "\n".join(lines) + "\n"

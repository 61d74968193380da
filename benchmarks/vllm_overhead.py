# What our instrumentation costs real vLLM: throughput in alternating pairs, CPU, start-up. Two servers of the
# same command live side by side, one with our entries disabled; only the one that is loaded works.
# Needs `make engines`.
#   make bench-vllm      (or: python benchmarks/vllm_overhead.py --starts 2 --pairs 10)
import argparse
import datetime as dt
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from build_engines import ENGINE, TORCH, find_engines_folder
from engine_footprint import read_cpu_s, read_ring_mib

from otel_llmprism.testing.engine_load import LoadPlan, build_asks, send_load
from otel_llmprism.testing.engine_server import EngineServer, ServerShape
from otel_llmprism.testing.otlp_server import OtlpServer
from otel_llmprism.testing.programs import Programs

RESULTS = Path(__file__).parent / "results" / "vllm_overhead.md"
CONCURRENCY = 256
TARGET_MEDIAN, TARGET_LOWER = 0.995, 0.98
TARGET_START_S = 0.2
SHAPE = ServerShape(
    "overhead", ("--max-model-len", "256", "--max-num-seqs", "256", "--max-num-batched-tokens", "512")
)
OFF = {"OTEL_LLMPRISM_DISABLED": "true"}
# Neither server keeps the tests' own book of tokens: its cost would count on both sides.
COMMON = {"VLLM_PLUGINS": "llmprism", "OTEL_METRIC_EXPORT_INTERVAL": "5000"}


@dataclass(slots=True)
class Findings:
    """Of one length of answers; start and rings are those of the servers."""

    ratios: list[float] = field(default_factory=list)
    throughput: dict[str, list[float]] = field(default_factory=lambda: {"without": [], "with": []})
    start_s: dict[str, list[float]] = field(default_factory=lambda: {"without": [], "with": []})
    cpu_ratios: list[float] = field(default_factory=list)
    ring_mib: list[float] = field(default_factory=list)
    exporter_share: list[float] = field(default_factory=list)


def main() -> int:
    options = parse_arguments()
    findings = {tokens: Findings() for tokens in options.tokens}
    for number in range(options.starts):
        measure_one_start(findings, options, is_first_ours=number % 2 == 0)
    text = format_report(findings, options)
    print(text)
    if options.write:
        RESULTS.write_text(text, encoding="utf-8")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=2, help="pairs of servers, one after the other")
    parser.add_argument("--pairs", type=int, default=10, help="pairs of loads for each pair of servers")
    parser.add_argument(
        "--requests", type=int, default=1024, help="in one load; fewer of more than 64 tokens"
    )
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=[32, 128], help="generated for each request, up to 160"
    )
    parser.add_argument("--mode", default="sentinel", choices=("sentinel", "deep"))
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    return parser.parse_args()


def measure_one_start(
    findings: dict[int, Findings], options: argparse.Namespace, *, is_first_ours: bool
) -> None:
    """Start both servers, load them in turn, and note everything in `findings`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-vllm-")))
        sink = stack.enter_context(OtlpServer())
        programs = stack.enter_context(Programs(folder))
        endpoint = f"http://{sink.grpc_endpoint}"
        servers = {}
        first = findings[options.tokens[0]]
        for kind in ("with", "without") if is_first_ours else ("without", "with"):
            servers[kind] = build_server(folder / kind, kind, endpoint, options.mode)
            began_s = time.monotonic()
            servers[kind].start(programs)
            first.start_s[kind].append(time.monotonic() - began_s)
            say(f"{kind}: up after {first.start_s[kind][-1]:.1f} s")
        for tokens, found in findings.items():
            requests = options.requests * 64 // max(64, tokens)
            for server in servers.values():
                run_load(programs, server, requests, tokens, seed=0)  # warms caches and lazy imports of both
            for pair in range(options.pairs):
                measure_pair(found, programs, servers, (requests, tokens), seed=pair + 1)
        first.ring_mib.append(read_ring_mib(servers["with"]))
        for server in servers.values():
            server.stop()


def build_server(folder: Path, kind: str, endpoint: str, mode: str) -> EngineServer:
    folder.mkdir()
    ours = OFF if kind == "without" else {"OTEL_LLMPRISM_MODE": mode}
    python = find_engines_folder() / "bin" / "python"
    return EngineServer(python, folder, SHAPE, otlp_endpoint=endpoint, environment={**COMMON, **ours})


def measure_pair(
    findings: Findings,
    programs: Programs,
    servers: dict[str, EngineServer],
    load: tuple[int, int],
    seed: int,
) -> None:
    # ABBA: whichever comes first finds other caches than the second.
    order = ("with", "without") if len(findings.ratios) % 4 in {0, 3} else ("without", "with")
    rates, cpu_s = {}, {}
    for kind in order:
        server = servers[kind]
        exporters = server.list_exporters()
        engine = [pid for pid in server.list_processes() if pid not in exporters]
        began_s, before, before_s = time.monotonic(), read_cpu_s(exporters), read_cpu_s(engine)
        rates[kind] = run_load(programs, server, *load, seed)
        took_s, cpu_s[kind] = time.monotonic() - began_s, read_cpu_s(engine) - before_s
        if exporters:
            findings.exporter_share.append((read_cpu_s(exporters) - before) / took_s)
        findings.throughput[kind].append(rates[kind])
    findings.ratios.append(rates["with"] / rates["without"])
    findings.cpu_ratios.append(cpu_s["with"] / cpu_s["without"])
    say(
        f"pair {len(findings.ratios)}: {rates['with']:.0f} / {rates['without']:.0f} tokens/s "
        f"= {findings.ratios[-1]:.3f}"
    )


def run_load(programs: Programs, server: EngineServer, requests: int, tokens: int, seed: int) -> float:
    """Return generated tokens a second, from the first request sent to the last answer's end."""
    plan = LoadPlan(requests, seed, prompt_words=(16, 48), max_tokens=(tokens, tokens))
    answers = send_load(programs, server, build_asks(plan), concurrency=CONCURRENCY)
    failed = [answer for answer in answers if answer.finish != "length"]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(answers)} requests failed, the first: {failed[0]}")
    took_ns = max(answer.ended_ns for answer in answers) - min(answer.sent_ns for answer in answers)
    return sum(answer.generated for answer in answers) / (took_ns / 1e9)


def draw_lower_bound(ratios: Sequence[float], draws: int = 10_000) -> float:
    """Return the lower end of the 95 % bootstrap interval of the median."""
    chance = random.Random(0)  # noqa: S311  repeatable on purpose
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[int(draws * 0.025)]


def list_rows(findings: Findings) -> list[tuple[str, str, str]]:
    """Return what was measured with one length of answers: name, figure, reach."""
    median, lower = statistics.median(findings.ratios), draw_lower_bound(findings.ratios)
    throughput = {kind: statistics.median(rates) for kind, rates in findings.throughput.items()}
    both = f"{throughput['with']:,.0f} and {throughput['without']:,.0f}"
    cpu = statistics.median(findings.cpu_ratios)
    return [
        ("throughput with / without, median", f"**{median:.3f}**", f"{TARGET_MEDIAN}"),
        ("its lower 95 % bound (bootstrap)", f"**{lower:.3f}**", f"{TARGET_LOWER}"),
        ("tokens a second, with and without", both, ""),
        ("single ratios, from to", f"{min(findings.ratios):.3f} to {max(findings.ratios):.3f}", ""),
        ("CPU of the engine's processes, with / without, median", f"**{cpu:.3f}**", ""),
        ("exporter's share of one core", f"{statistics.median(findings.exporter_share):.1%}", ""),
    ]


def format_report(findings: dict[int, Findings], options: argparse.Namespace) -> str:
    first = findings[options.tokens[0]]
    columns = [list_rows(found) for found in findings.values()]
    lines = [
        f"| {what} | {' | '.join(rows[at][1] for rows in columns)} | {reach} |"
        for at, (what, _, reach) in enumerate(columns[0])
    ]
    ring, start = f"{statistics.median(first.ring_mib):.1f} MiB", f"{difference(first.start_s):+.1f} s"
    blank = " |" * (len(columns) - 1)
    lines.append(f"| rings (shared memory) | {ring} |{blank} |")
    lines.append(f"| whole start-up, with - without | {start} |{blank} {TARGET_START_S} s |")
    table = "\n".join(lines)
    heads = " | ".join(f"answers of {tokens} tokens" for tokens in findings)
    today = dt.datetime.now(dt.UTC).date().isoformat()
    return f"""# What it costs vLLM

vLLM's OpenAI server on a CPU under `opentelemetry-instrument`, a tiny Llama with random weights,
{CONCURRENCY} streams at a time, batches up to 256, OTLP to a sink on loopback; mode {options.mode}. Two
servers of the same command live side by side, one with `OTEL_LLMPRISM_DISABLED=true`; {len(first.ratios)}
alternating pairs of loads for each length of answers ({options.requests} requests up to 64 tokens, beyond
that fewer) in the order ABBA, on {options.starts} pairs of fresh servers.
A step of this model takes milliseconds, so the share of the hooks is larger than on any GPU; engine, server,
client, exporter and sink share the cores, so their CPU counts too. What a request costs once, its records and
spans, is spread over its tokens: the shorter the answers, the larger its share.

| what | {heads} | reach |
|---|{"---|" * len(columns)}---|
{table}

The start-up of a whole server differs by seconds from one start to the next; what our code takes of it is
in `startup.md`; time of the hooks and memory are in `vllm_hooks.md`.
Machine: {os.cpu_count()} cores, {platform.machine()}, {platform.release()}.
Versions: {ENGINE}, {TORCH}, Python {platform.python_version()}.
Command: `python benchmarks/vllm_overhead.py --starts {options.starts} --pairs {options.pairs}
--tokens {" ".join(map(str, options.tokens))} --mode {options.mode}` ({today}; `make bench-vllm`).
"""


def difference(values: dict[str, list[float]]) -> float:
    """Return the median of the differences of the pairs."""
    return statistics.median(
        ours - theirs for ours, theirs in zip(values["with"], values["without"], strict=True)
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

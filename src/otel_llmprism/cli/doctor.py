# `doctor`: what is available on this machine, one line each, with the mend; with a pid also who shares that
# process with us. Looks and reports; starts nothing, changes nothing, imports no framework.
import argparse
import os
from collections.abc import Callable, Iterator

from otel_llmprism.cli.doctor_checks import frameworks, machine, process
from otel_llmprism.cli.doctor_checks.report import Report, format_json, format_lines

HELP = "what is available here, one line each, with the mend"
EXAMPLE = "otel-llmprism doctor"

CHECKS: tuple[Callable[[], Iterator[Report]], ...] = (
    machine.check_versions,
    frameworks.check_instrument,
    frameworks.check_entry_points,
    frameworks.check_targets,
    machine.check_native,
    machine.check_extension,
    machine.check_extras,
    machine.check_shared_memory,
    machine.check_runtime_folder,
    machine.check_control_folder,
    machine.check_gpu,
    machine.check_pressure,
    machine.check_attach,
    process.check_here,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--endpoint", help="OTLP endpoint to try (default: OTEL_EXPORTER_OTLP_ENDPOINT)")
    parser.add_argument("--pid", type=int, help="look at this running process and those below it, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print one line per check; 1 when something that was asked for cannot work."""
    reports = [report for check in CHECKS for report in check()]
    reports += machine.check_endpoint(args.endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", ""))
    if args.pid is not None:
        reports += process.check_engine(args.pid)
    print(format_json(reports) if args.json else format_lines(reports))
    return 1 if any(report.level == "fail" for report in reports) else 0

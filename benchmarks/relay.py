# What a relayed span costs: CPU of the whole process tree, our processor against the Collector with its
# transform processor, in alternating pairs under the same load; and the delay that unclaimed spans get.
#   make bench-relay      (or: python benchmarks/relay.py --pairs 5 --write benchmarks/results/relay.md)
import argparse
import datetime as dt
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from relay_payload import ENRICHED_EVERY, MATCH_KEY, MATCH_VALUE, SPANS_PER_REQUEST, STAMPS
from relay_run import Load, Result, measure
from relay_systems import (
    Setup,
    build_collector_command,
    build_ours_command,
    read_machine,
    read_versions,
)

TARGET_RATIO = 0.5
TARGET_P99_MS = 10.0
Build = Callable[[Setup], list[str]]
CONDITIONS = (("none", False), ("none", True), ("gzip", False), ("gzip", True))


@dataclass(slots=True)
class Row:
    """One condition: CPU microseconds a span of both, pair by pair."""

    compression: str
    is_durable: bool
    collector_us: list[float] = field(default_factory=list)
    ours_us: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        what = "durable" if self.is_durable else "in memory"
        return what if self.compression == "none" else f"{what}, {self.compression}"

    @property
    def ratios(self) -> list[float]:
        """Pair by pair, smallest first."""
        return sorted(ours / theirs for ours, theirs in zip(self.ours_us, self.collector_us, strict=True))

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def format(self) -> str:
        ratios = self.ratios
        theirs, ours = statistics.median(self.collector_us), statistics.median(self.ours_us)
        return (
            f"| {self.name} | {theirs:.2f} | {ours:.2f} | **{self.ratio:.2f}** "
            f"| {ratios[0]:.2f} to {ratios[-1]:.2f} |"
        )


def main() -> int:
    options = parse_arguments()
    load_before = os.getloadavg()[0]
    load = Load(options.rate, int(options.rate * options.seconds), int(options.rate * options.warm_up))
    rows = [Row(compression, is_durable) for compression, is_durable in CONDITIONS[: options.conditions]]
    for number in range(options.pairs):
        for row in rows:
            measure_pair(row, load, is_ours_first=number % 2 == 1)
    lines = [format_header(options), *(row.format() for row in rows), ""]
    if not options.no_latency:
        lines += measure_latency(options.seconds)
    text = "\n".join([*lines, format_footer(options, load_before)])
    print(text)
    if options.write:
        options.write.write_text(text + "\n")
    return 0 if all(row.ratio <= TARGET_RATIO for row in rows if row.compression == "none") else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="CPU a relayed span costs, ours against the Collector's")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=100.0, help="requests a second (512 spans each)")
    parser.add_argument("--seconds", type=float, default=8.0, help="measured, each run")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds before, each run")
    parser.add_argument("--conditions", type=int, default=len(CONDITIONS), help="only the first N rows")
    parser.add_argument("--no-latency", action="store_true")
    parser.add_argument("--write", type=Path, metavar="FILE")
    return parser.parse_args()


def measure_pair(row: Row, load: Load, *, is_ours_first: bool) -> None:
    runs: list[tuple[list[float], Build]] = [
        (row.collector_us, build_collector_command),
        (row.ours_us, build_ours_command),
    ]
    for figures, build in reversed(runs) if is_ours_first else runs:
        result = measure(build, load, is_durable=row.is_durable, compression=row.compression)
        check_enriched(result)
        figures.append(result.cpu_us_per_span)
        who = "ours" if build is build_ours_command else "collector"
        note = f"retried {result.retried}, late {result.late_s * 1e3:.0f} ms"
        print(f"{row.name}: {who} {result.cpu_us_per_span:.2f} us/span ({note})", file=sys.stderr)


def check_enriched(result: Result) -> None:
    """Both must have done the same work: exactly the asked spans carry exactly the asked attributes."""
    request = ExportTraceServiceRequest.FromString(result.last_payload)
    spans = [span for traces in request.resource_spans for span in traces.scope_spans[0].spans]
    assert len(spans) == SPANS_PER_REQUEST
    for index, span in enumerate(spans):
        found = {item.key: item.value for item in span.attributes}
        is_asked = found[MATCH_KEY].string_value == MATCH_VALUE
        assert is_asked == (index % ENRICHED_EVERY == 0)
        assert len(found) == len(span.attributes) == (10 + len(STAMPS) if is_asked else 10)


def measure_latency(seconds: float) -> list[str]:
    """Find the greatest load of each durability, then the delay it adds at half of that."""
    lines = [
        "Delay of spans that no stage claims, from sending to arrival, at half of the greatest load;",
        "client, processor and sink share the machine. Target: p99 at most",
        f"{TARGET_P99_MS:.0f} ms above the direct way.",
        "",
        "| ours | greatest load | half of it | direct p50, p99 ms | through p50, p99 ms | added, p99 ms |",
        "|---|---|---|---|---|---|",
    ]
    for name, is_durable in (("in memory", False), ("durable", True)):
        flat_out = measure(build_ours_command, Load(0, 1500, 300), is_durable=is_durable, is_enriching=False)
        rate = flat_out.requests_per_s / 2
        load = Load(rate, int(rate * seconds), 100)
        direct = summarise_delays(measure(None, load))
        through = summarise_delays(
            measure(build_ours_command, load, is_durable=is_durable, is_enriching=False)
        )
        lines.append(
            f"| {name} | {2 * rate * SPANS_PER_REQUEST:,.0f} spans/s | {rate:.0f} requests/s "
            f"| {direct[0]:.2f}, {direct[1]:.2f} | {through[0]:.2f}, {through[1]:.2f} "
            f"| **{through[1] - direct[1]:.2f}** |"
        )
    return [*lines, ""]


def summarise_delays(result: Result) -> tuple[float, float]:
    ordered = sorted(result.delays_ns)
    return ordered[len(ordered) // 2] / 1e6, ordered[int(len(ordered) * 0.99)] / 1e6


def format_header(options: argparse.Namespace) -> str:
    spans = options.rate * SPANS_PER_REQUEST
    return f"""# Relay: CPU a span costs

OTLP/gRPC in, OTLP/gRPC out; spans of 10 attributes in requests of 512; every tenth span gets 3 attributes;
user + system CPU of the whole process tree; same client, same sink. Offered: {options.rate:.0f} requests a
second ({spans:,.0f} spans a second) for {options.seconds:.0f} s after {options.warm_up:.0f} s of warm-up;
{options.pairs} alternating pairs a row, medians. Ours: `mode: inline` with the stamp; durable: our log
(`durability: process`). The Collector: its transform processor; durable: its sending queue in
`file_storage`. Both survive kill -9, not a power cut. Target: a ratio of at most {TARGET_RATIO} in the first
two rows.

| condition | Collector us/span | ours us/span | ratio | ratios of the pairs |
|---|---|---|---|---|"""


def format_footer(options: argparse.Namespace, load_before: float) -> str:
    today = dt.datetime.now(dt.UTC).date().isoformat()
    return (
        f"Machine: {read_machine()}.\nVersions: {read_versions()}.\n"
        f"Command: `python benchmarks/relay.py --pairs {options.pairs} --seconds {options.seconds:g}` "
        f"({today}; `make bench-relay`).\nLoad average before it began: {load_before:.1f}; what else runs "
        "on the machine costs\nboth systems their cache, and the single ratios spread with it."
    )


if __name__ == "__main__":
    sys.exit(main())

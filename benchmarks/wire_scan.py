# How fast requests become columns and back: spans of 10 attributes in requests of 512, one core, CPU time.
# `make bench-wire` or `python benchmarks/wire_scan.py [--rounds N] [--write]`
import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from random import Random

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.native import otlp, otlp_native, otlp_twin
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.receipt import Receipt
from otel_llmprism.reconstruct.stamp import StampConfig, StampStage

SPANS = 512
KEYS = otlp.KeySelection(
    (
        "url.path",
        "http.response.status_code",
        "gen_ai.request.model",
        "gen_ai.usage.output_tokens",
        "app.share",
    ),
    ("service.name",),
)
RESULTS = Path(__file__).parent / "results" / "wire_scan.md"


@dataclass(frozen=True)
class Row:
    what: str
    run: Callable[[], object]
    repeat: int


def build_payload() -> bytes:
    random = Random(1)  # noqa: S311 - the same spans on every run
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    scope = resource.scope_spans.add()
    scope.scope.name = "bench"
    for number in range(SPANS):
        span = scope.spans.add(
            trace_id=random.randbytes(16), span_id=random.randbytes(8), parent_span_id=random.randbytes(8),
            name=f"GET /api/{number % 10}",
            start_time_unix_nano=10**18 + number, end_time_unix_nano=10**18 + 10**6,
        )  # fmt: skip
        for key, text in (
            ("http.request.method", "GET"),
            ("url.path", f"/api/users/{number}"),
            ("server.address", f"host-{number % 5}"),
            ("gen_ai.request.model", "llama-3-70b"),
        ):
            span.attributes.add(key=key).value.string_value = text
        for key, count in (
            ("http.response.status_code", 200),
            ("server.port", 8080),
            ("gen_ai.usage.input_tokens", 1234),
            ("gen_ai.usage.output_tokens", number),
        ):
            span.attributes.add(key=key).value.int_value = count
        span.attributes.add(key="app.share").value.double_value = 1.5
        span.attributes.add(key="app.ok").value.bool_value = True
    return request.SerializeToString()


def list_rows(payload: bytes) -> list[Row]:
    found = otlp.scan(payload, "traces", KEYS)
    fields = b"".join(otlp.encode_attribute("traces", f"llmprism.{name}", 7) for name in "abc")
    edits = [(index, fields) for index in range(0, SPANS, 10)]
    keep = bytes(index % 10 != 0 for index in range(SPANS))
    stage = StampStage(StampConfig(("GET /api/3",), attributes={"a": 1, "b": "text", "c": True}))
    batch = Batch(Signal.TRACES, payload, Receipt(lambda: None), 0)
    native = [
        Row(
            "scan, 5 attribute values and 1 of the resource",
            lambda: otlp_native.scan(payload, "traces", KEYS),
            200,
        ),
        Row("scan, no values", lambda: otlp_native.scan(payload, "traces", otlp.NO_KEYS), 200),
        Row(
            "scan of bytes checked before, no values",
            lambda: otlp_native.scan(payload, "traces", otlp.NO_KEYS, is_checked=True),
            200,
        ),
        Row(
            "append 3 attributes to every 10th span",
            lambda: otlp.append_attributes(payload, found, edits),
            200,
        ),
        Row("drop every 10th span", lambda: otlp.select(payload, found, keep), 200),
        Row("stamp stage: scan, match names, append to 10 %", lambda: stage.consume(batch), 200),
    ]
    slow = [
        Row("the Python twin's scan, with the values", lambda: otlp_twin.scan(payload, "traces", KEYS), 1),
        Row(
            "next best: upb decodes, nothing read", lambda: ExportTraceServiceRequest.FromString(payload), 50
        ),
        Row("next best: upb decodes, Python reads the values", lambda: read_with_upb(payload), 1),
        Row(
            "next best: upb decodes and encodes",
            lambda: ExportTraceServiceRequest.FromString(payload).SerializeToString(),
            50,
        ),
    ]
    return (native if otlp_native.find_scanner() else []) + slow


def read_with_upb(payload: bytes) -> list[tuple[object, ...]]:
    wanted = set(KEYS.record_keys)
    return [
        (
            span.trace_id, span.span_id, span.name, span.start_time_unix_nano, span.end_time_unix_nano,
            {pair.key: pair.value for pair in span.attributes if pair.key in wanted},
        )
        for resource in ExportTraceServiceRequest.FromString(payload).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]  # fmt: skip


def measure_us(row: Row, rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        start = time.process_time_ns()
        for _ in range(row.repeat):
            row.run()
        times.append((time.process_time_ns() - start) / row.repeat / 1000)
    return times


def describe_machine() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.split(":")[1].strip() for line in lines if "model name" in line]
    model = models[0] if models else platform.machine()
    return f"1 of {os.cpu_count()} cores of {model}, Linux {platform.release()}"


def render(payload: bytes, rounds: int) -> str:
    about = (
        f"`make bench-wire`: {SPANS} spans of 10 attributes, {len(payload) // SPANS} bytes a span, median",
        f"CPU time of {rounds} rounds. {describe_machine()}; Python {platform.python_version()}, protobuf",
        f"{version('protobuf')} (upb). To reach: 2 million spans/s native, selected values included.",
        "Neighbours on a shared machine slow single rounds; the range shows it.",
    )
    lines = ["# How fast OTLP requests become columns", "", *about, ""]
    lines += ["| what | us a request | from, to | million spans/s |", "|---|---|---|---|"]
    for row in list_rows(payload):
        row.run()
        times = measure_us(row, rounds)
        middle = statistics.median(times)
        lines.append(
            f"| {row.what} | {middle:.0f} | {min(times):.0f} to {max(times):.0f} | {SPANS / middle:.3g} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="measure the OTLP scanner")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    text = render(build_payload(), options.rounds)
    print(text)
    if options.write:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

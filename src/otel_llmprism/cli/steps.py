# `steps`: the ledgers that this machine keeps: list them, export them as step records, or turn a step or
# a request of the past into a trace.
import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.semconv.step import KINDS

if TYPE_CHECKING:
    from otel_llmprism.receivers.ledger import LedgerSource
    from otel_llmprism.service.ledger_history import LedgerHistory, StepBounds

HELP = "list the ledgers kept on this machine, export their steps, show one as a trace"
EXAMPLE = "otel-llmprism steps --kind decode --from 2026-03-01T12:00:00Z --format csv --out steps.csv"
FORMATS = ("text", "csv", "jsonl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("place", nargs="?", type=Path, help="ledger folder or segment (default: this user's)")
    parser.add_argument("--runs", action="store_true", help="list the runs, not their steps")
    parser.add_argument("--engine", default="", help="only this engine id")
    parser.add_argument("--run", default="", help="only this run (its first digits are enough)")
    parser.add_argument("--from", dest="since", metavar="STEP|TIME", help="first step, or ISO 8601 time")
    parser.add_argument("--to", dest="until", metavar="STEP|TIME", help="last step, or ISO 8601 time")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only these kinds; may be repeated")
    parser.add_argument("--format", choices=FORMATS, default="text", help="csv and jsonl are step records")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write there, not to standard output")
    parser.add_argument(
        "--as-trace", metavar="STEP|REQUEST", help="one step, or one request by its id, as OTLP JSON"
    )
    parser.add_argument("--export", metavar="ENDPOINT", help="send the trace there by OTLP, do not print it")


def run(args: argparse.Namespace) -> int:
    """Do what is asked; 1 when nothing fits, 2 for bad use."""
    # Imported here: --help needs neither numpy nor protobuf.
    from otel_llmprism.config.ledger_folder import read_ledger_folder  # noqa: PLC0415 - see above
    from otel_llmprism.service.ledger_history import LedgerHistory  # noqa: PLC0415 - see above

    if args.export and not args.as_trace:
        raise ConfigError("--export sends a trace: say which with --as-trace STEP or --as-trace REQUEST")
    history = LedgerHistory(args.place or read_ledger_folder(os.environ).folder)
    bounds = read_bounds(args)
    status = _show_trace(args, history, bounds) if args.as_trace else _list(args, history, bounds)
    for problem in history.problems:
        print(f"otel-llmprism: {problem}", file=sys.stderr)
    for reading in history.counters.read_all():
        print(f"otel-llmprism: {reading.value:.0f} x {reading.labels['cause']}", file=sys.stderr)
    return status


def read_bounds(args: argparse.Namespace) -> "StepBounds":
    """Return what the arguments ask for; ConfigError for what cannot be read."""
    from otel_llmprism.service.ledger_history import StepBounds  # noqa: PLC0415 - see run()

    first, from_ns = _read_bound(args.since, "--from")
    last, to_ns = _read_bound(args.until, "--to")
    kinds = frozenset(KINDS.index(kind) + 1 for kind in args.kind or ())
    bounds = {"first_step": first, "last_step": last, "from_ns": from_ns, "to_ns": to_ns}
    known: Mapping[str, int] = {name: value for name, value in bounds.items() if value is not None}
    return StepBounds(args.engine, args.run, kinds=kinds, **known)


def _read_bound(text: str | None, option: str) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    if re.fullmatch("[0-9]{1,18}", text):
        return int(text), None
    try:
        return None, int(datetime.fromisoformat(text).astimezone().timestamp() * 1e9)
    except ValueError as error:
        raise ConfigError(f"{option} {text}: a step number or a time such as 2026-03-01T12:00:00Z") from error


def _list(args: argparse.Namespace, history: "LedgerHistory", bounds: "StepBounds") -> int:
    lines = _list_runs(history, bounds) if args.runs else _list_steps(args.format, history, bounds)
    if args.out is None:
        return _write(lines, sys.stdout)
    with args.out.open("w", encoding="utf-8") as file:
        return _write(lines, file)


def _write(lines: Iterator[str], file: TextIO) -> int:
    count = 0
    for line in lines:
        file.write(line)
        count += 1
    if count <= 1:
        print("otel-llmprism: no ledger kept here has such steps", file=sys.stderr)
    return 0 if count > 1 else 1


def _list_runs(history: "LedgerHistory", bounds: "StepBounds") -> Iterator[str]:
    yield f"{'run':32} {'segments':>8} {'bytes':>12} node engine\n"
    segments = history.list_segments(bounds)
    for source in dict.fromkeys(segment.source for segment in segments):
        own = [segment.path.stat().st_size for segment in segments if segment.source == source]
        yield f"{source.run:32} {len(own):>8} {sum(own):>12} {source.node} {source.engine_id}\n"


def _list_steps(name: str, history: "LedgerHistory", bounds: "StepBounds") -> Iterator[str]:
    from otel_llmprism.exporters.step_records import (  # noqa: PLC0415 - see run()
        RecordFormat,
        format_header,
        format_records,
    )

    record_format = RecordFormat(name)
    yield format_header(record_format)
    for batch in history.read_batches(bounds):
        rows, engine = bounds.select_rows(batch), batch.source.engine_id
        steps, chunks = batch.tables.steps, batch.chunks
        yield from format_records(steps, chunks, rows, record_format, engine=engine, instance=engine)


def _show_trace(args: argparse.Namespace, history: "LedgerHistory", bounds: "StepBounds") -> int:
    from otel_llmprism.exporters.otlp_spans import encode_spans  # noqa: PLC0415 - see run()
    from otel_llmprism.exporters.request_spans import RequestTexts  # noqa: PLC0415 - see run()
    from otel_llmprism.semconv import request as names  # noqa: PLC0415 - see run()
    from otel_llmprism.service.ledger_traces import (  # noqa: PLC0415 - see run()
        build_past_request,
        build_past_step,
    )

    source = _choose_source(history, bounds)
    owner = next(s.owner for s in history.list_segments(bounds) if s.source == source)
    if re.fullmatch("[0-9]{1,18}", args.as_trace):
        spans = build_past_step(history, source, int(args.as_trace))
    else:
        shared = (names.GEN_AI_OPERATION_NAME, names.GEN_AI_PROVIDER_NAME, names.GEN_AI_REQUEST_MODEL)
        texts = RequestTexts(*(owner.requests.get(name, "") for name in shared))
        spans = build_past_request(history, source, args.as_trace, texts)
    if not spans:
        print(f"otel-llmprism: run {source.run} has no step or request {args.as_trace}", file=sys.stderr)
        return 1
    return _deliver(args, encode_spans(owner.resource, spans), len(spans))


def _choose_source(history: "LedgerHistory", bounds: "StepBounds") -> "LedgerSource":
    sources = history.list_sources(bounds)
    if len(sources) == 1:
        return sources[0]
    if not sources:
        raise ConfigError(f"no ledger in {history.place} fits: see otel-llmprism steps --runs")
    raise ConfigError(
        f"{len(sources)} runs fit, say which with --run: {', '.join(source.run for source in sources[:5])}"
    )


def _deliver(args: argparse.Namespace, payload: bytes, span_count: int) -> int:
    if not args.export:
        from otel_llmprism.exporters.otlp_json import format_traces  # noqa: PLC0415 - see run()

        text = format_traces(payload) + "\n"
        if args.out is None:
            sys.stdout.write(text)
        else:
            args.out.write_text(text, encoding="utf-8")
        return 0
    from otel_llmprism.exporters.otlp_client import OtlpClient  # noqa: PLC0415 - see run()
    from otel_llmprism.exporters.otlp_client_config import OtlpClientConfig  # noqa: PLC0415 - see run()
    from otel_llmprism.exporters.otlp_client_result import SendStatus  # noqa: PLC0415 - see run()
    from otel_llmprism.model.signals import Signal  # noqa: PLC0415 - see run()

    client = OtlpClient(OtlpClientConfig(endpoint=args.export))
    try:
        result = client.send(Signal.TRACES, payload)
    finally:
        client.close()
    if result.status is not SendStatus.DELIVERED:
        print(f"otel-llmprism: {args.export}: {result.status.value}: {result.message}", file=sys.stderr)
        return 1
    print(f"{span_count} spans sent to {args.export}", file=sys.stderr)
    return 0

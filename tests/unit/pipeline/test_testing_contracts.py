from collections.abc import Iterable

import pytest

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.testing.contracts import check_sink_contract, check_source_contract, check_stage_contract
from otel_llmprism.testing.ids import SequentialIds
from otel_llmprism.testing.sinks import FailingSink, RecordingSink


class Leaky:
    """Drops every batch without settling it."""

    def consume(self, batch: Batch, /) -> Iterable[Batch]:
        return ()

    def flush(self, due_ns: int, /) -> Iterable[Batch]:
        return ()


def test_stage_that_leaks_a_receipt_fails_the_contract() -> None:
    with pytest.raises(AssertionError):
        check_stage_contract(Leaky, [(Signal.TRACES, b"")])


def test_recording_sink_keeps_the_sink_contract() -> None:
    check_sink_contract(RecordingSink, 0)


def test_sink_that_never_settles_fails_the_contract() -> None:
    with pytest.raises(AssertionError):
        check_sink_contract(lambda: RecordingSink(holds_receipts=True), 0)


def test_failing_sink_raises_and_then_recovers() -> None:
    with pytest.raises(OSError, match="told to fail"):
        check_sink_contract(lambda: FailingSink(failures=1), 0)
    check_sink_contract(lambda: FailingSink(failures=0), 0)


def test_source_contract_starts_and_stops_twice() -> None:
    calls: list[str] = []

    class Noting:
        def start(self) -> None:
            calls.append("start")

        def stop(self, deadline_ns: int) -> None:
            calls.append("stop")

    check_source_contract(Noting, 0)
    assert calls == ["stop", *["start", "stop", "stop"] * 2]


def test_sequential_ids_have_the_widths_of_otlp() -> None:
    ids = SequentialIds()
    assert (ids.mint_trace_id(), ids.mint_span_id()) == (bytes(15) + b"\1", bytes(7) + b"\2")

# The stages as this service uses them: what the hold claims, what ends here, what is switched off.
from collections.abc import Iterable
from functools import partial

import numpy as np

from otel_llmprism.model.signals import Signal
from otel_llmprism.native.otlp import NO_KEYS, MalformedRequestError, scan
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.hold import Claim, Hold, HoldConfig
from otel_llmprism.receivers.ledger import LedgerReader
from otel_llmprism.receivers.otlp_tables import wrap_spans
from otel_llmprism.reconstruct.stamp import StampConfig, StampStage
from otel_llmprism.semconv.delivery import CONSUMED
from otel_llmprism.service.processor_ledger import LedgerStage
from otel_llmprism.service.processor_ledger_meter import LedgerMeter
from otel_llmprism.service.reload_switch import BatchStage, PassOn
from otel_llmprism.service.settings import HoldSettings


class EndHere:
    """A Stage that settles what reaches it: mode beside gets a copy and sends nothing of it on."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def consume(self, batch: Batch, /) -> Iterable[Batch]:
        self._counters.add(CONSUMED, signal=batch.signal)
        batch.receipt.settle()
        return ()

    def flush(self, due_ns: int, /) -> Iterable[Batch]:
        del due_ns
        return ()


def build_ledger_stage(counters: Counters) -> BatchStage:
    """Return the stage that consumes ledger records, and counts what they tell."""
    return LedgerStage(LedgerReader(counters), LedgerMeter(counters).take)


def build_hold(settings: HoldSettings, counters: Counters) -> BatchStage:
    """Return a hold for spans with the given names; none: everything passes."""
    if not settings.span_names:
        return PassOn()
    names = tuple(name.encode() for name in settings.span_names)
    return Hold(HoldConfig(settings.duration_s, settings.max_bytes), partial(find_claim, names), counters)


def build_stamp(config: StampConfig | None) -> BatchStage:
    """Return the stamping stage; without a configuration everything passes."""
    return PassOn() if config is None else StampStage(config)


def find_claim(names: tuple[bytes, ...], batch: Batch) -> Claim | None:
    """Return which spans of a trace batch have one of the names; None when none can."""
    if batch.signal is not Signal.TRACES or not any(name in batch.payload for name in names):
        return None
    try:
        found = scan(batch.payload, batch.signal)
    except MalformedRequestError:
        return None
    table = wrap_spans(batch.payload, found, NO_KEYS)
    mask = np.zeros(found.record_count, dtype=np.bool_)
    for name in names:
        mask |= table.name.match_text(name)
    return Claim(found, mask.tobytes())

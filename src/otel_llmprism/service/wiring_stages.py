# The stages as this service uses them: what the hold claims, what ends here, what is switched off.
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from otel_llmprism.model.signals import Signal
from otel_llmprism.native.otlp import NO_KEYS, MalformedRequestError, scan
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.hold import Claim, Hold, HoldConfig
from otel_llmprism.receivers.ledger import HostBatch, LedgerBatch, LedgerReader
from otel_llmprism.receivers.otlp_tables import wrap_spans
from otel_llmprism.reconstruct.stamp import StampConfig, StampStage
from otel_llmprism.semconv.delivery import CONSUMED
from otel_llmprism.service.processor_ledger import LedgerStage
from otel_llmprism.service.processor_ledger_meter import LedgerMeter
from otel_llmprism.service.reload_switch import BatchStage, PassOn
from otel_llmprism.service.sentinel.enrich_stage import EnrichStage
from otel_llmprism.service.sentinel.own_mark import has_mark, strip_mark
from otel_llmprism.service.sentinel.switch import SentinelSwitch
from otel_llmprism.service.settings import HoldSettings


class EndHere:
    """A Stage that settles what reaches it: mode beside gets a copy and sends on only what we made."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def consume(self, batch: Batch, /) -> Iterable[Batch]:
        if has_mark(batch.payload):
            return (replace(batch, payload=strip_mark(batch.payload)),)
        self._counters.add(CONSUMED, signal=batch.signal)
        batch.receipt.settle()
        return ()

    def flush(self, due_ns: int, /) -> Iterable[Batch]:
        del due_ns
        return ()


class TakeMarkOff:
    """A Stage: what we made ourselves leaves without our mark, everything else as it came."""

    def consume(self, batch: Batch, /) -> Iterable[Batch]:
        if has_mark(batch.payload):
            return (replace(batch, payload=strip_mark(batch.payload)),)
        return (batch,)

    def flush(self, due_ns: int, /) -> Iterable[Batch]:
        del due_ns
        return ()


def build_ledger_stage(
    counters: Counters, sentinel: SentinelSwitch | None, *, is_forwarding: bool = False
) -> BatchStage:
    """Return the stage that consumes ledger records, counts what they tell, and lets the sentinel know."""
    meter = LedgerMeter(counters)
    if sentinel is None:
        return PassOn() if is_forwarding else LedgerStage(LedgerReader(counters), meter.take)

    def take(batch: LedgerBatch | HostBatch) -> None:
        meter.take(batch)
        sentinel.take(batch)

    return LedgerStage(LedgerReader(counters), take, sentinel.note_request, is_forwarding=is_forwarding)


def build_hold(settings: HoldSettings, counters: Counters, claimed: Sequence[str] = ()) -> BatchStage:
    """Return a hold for spans with the given names, and for those `claimed`; none: everything passes."""
    names = tuple(dict.fromkeys(name.encode() for name in (*settings.span_names, *claimed)))
    if not names:
        return PassOn()
    return Hold(HoldConfig(settings.duration_s, settings.max_bytes), partial(find_claim, names), counters)


def build_verdicts(sentinel: SentinelSwitch, counters: Counters) -> BatchStage:
    """Return the stage that appends what the sentinel knows to our spans."""
    return EnrichStage(lambda: sentinel.verdicts, counters)


def build_stamp(config: StampConfig | None) -> BatchStage:
    """Return the stamping stage; without a configuration everything passes."""
    return PassOn() if config is None else StampStage(config)


def find_claim(names: tuple[bytes, ...], batch: Batch) -> Claim | None:
    """Return which spans of a trace batch have one of the names; None when none can."""
    if batch.signal is not Signal.TRACES or has_mark(batch.payload):
        return None
    if not any(name in batch.payload for name in names):
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

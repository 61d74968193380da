# The exporter process's one loop: drain rings, turn tables into parcels, sample the host, send metrics,
# and end when the engine is gone or somebody says stop. The clock comes in.
from collections.abc import Callable
from dataclasses import dataclass

from otel_llmprism.exporters.otlp_attributes import Attributes
from otel_llmprism.exporters.otlp_metrics import encode_metrics
from otel_llmprism.exporters.otlp_spans import encode_spans
from otel_llmprism.exporters.step_spans import StepOrigin
from otel_llmprism.model.signals import Signal
from otel_llmprism.model.steps import Anchor
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler
from otel_llmprism.service.exporter_process.byte_budget import ByteBudget
from otel_llmprism.service.exporter_process.engine_metrics import EngineMetrics
from otel_llmprism.service.exporter_process.engine_telemetry import EngineTelemetry, Outgoing
from otel_llmprism.service.exporter_process.hook_notes import tell_hooks_off
from otel_llmprism.service.exporter_process.host_watch import HostWatch
from otel_llmprism.service.exporter_process.ledger_shipper import LedgerShipper
from otel_llmprism.service.exporter_process.metric_store import MetricStore
from otel_llmprism.service.exporter_process.outbox import Parcel
from otel_llmprism.service.exporter_process.ring_watch import RingWatch
from otel_llmprism.service.exporter_process.settings import ExporterSettings

_MAX_SPANS = 2000  # in one request


@dataclass(frozen=True, slots=True)
class LoopParts:
    settings: ExporterSettings
    resource: Attributes
    version: str
    rings: RingWatch
    assembler: RingAssembler
    telemetry: EngineTelemetry
    metrics: EngineMetrics
    store: MetricStore
    counters: Counters
    budget: ByteBudget
    shipper: LedgerShipper
    put: Callable[[Parcel], None]
    host: HostWatch
    read_anchor: Callable[[], Anchor]
    is_engine_gone: Callable[[], bool]
    build_origin: Callable[[Anchor], StepOrigin]


class ExporterLoop:
    def __init__(self, parts: LoopParts) -> None:
        self._parts = parts
        anchor = parts.read_anchor()
        self._started = anchor
        self._next_ns = {"ship": 0, "host": 0, "metrics": anchor.monotonic_ns}

    def turn(self) -> bool:
        """Do what is due; False when the engine is gone and everything of it was taken."""
        parts = self._parts
        parts.rings.find_rings()
        self._drain()
        anchor = parts.read_anchor()
        if self._is_due("ship", anchor, parts.settings.ship_s):
            self._take_tables(anchor)
        if self._is_due("host", anchor, parts.settings.host_s):
            self._sample_host(anchor)
        if self._is_due("metrics", anchor, parts.settings.metric_s):
            self._send_metrics(anchor)
        parts.rings.remove_finished()
        return not (parts.rings.is_over or parts.is_engine_gone())

    def finish(self, *, is_engine_gone: bool) -> None:
        """Take everything that is there and put it in the outbox."""
        parts = self._parts
        parts.rings.find_rings()
        self._drain()
        anchor = parts.read_anchor()
        self._take_tables(anchor, is_final=True)
        origin = parts.build_origin(anchor)
        self._put_spans(parts.telemetry.release(origin, hold_ns=0), anchor)
        if is_engine_gone:
            self._put_spans(parts.telemetry.finish(origin), anchor)
            parts.metrics.set_requests(0, 0)
        self._send_metrics(anchor)
        parts.rings.remove_finished()
        parts.rings.close()
        parts.host.close()

    def _drain(self) -> None:
        for source, slots in self._parts.rings.drain():
            self._parts.host.note_slots(self._parts.rings.find_writer(source), slots)
            tell_hooks_off(self._parts.assembler.consume(slots, source))

    def _take_tables(self, anchor: Anchor, *, is_final: bool = False) -> None:
        parts = self._parts
        origin = parts.build_origin(anchor)
        while (tables := parts.assembler.take(anchor.monotonic_ns, is_final=is_final)) is not None:
            parts.shipper.add_tables(tables, anchor)
            self._put_spans(parts.telemetry.consume(tables, origin), anchor)
        self._put_spans(parts.telemetry.release(origin), anchor)
        self._ship(anchor)

    def _ship(self, anchor: Anchor) -> None:
        while (request := self._parts.shipper.take_request())[1]:
            if self._parts.settings.ships_ledger:
                self._put(Parcel(Signal.LOGS, *request), anchor.monotonic_ns)

    def _put_spans(self, outgoing: Outgoing, anchor: Anchor) -> None:
        parts = self._parts
        if not parts.settings.sends_traces:
            return
        for kept, spans in outgoing.spans.items():
            for first in range(0, len(spans), _MAX_SPANS):
                some = spans[first : first + _MAX_SPANS]
                payload = encode_spans(parts.resource, some, parts.version)
                parcel = Parcel(Signal.TRACES, payload, len(some), kept)
                # Step spans have drawn when they were built.
                parts.put(parcel) if kept else self._put(parcel, anchor.monotonic_ns)

    def _sample_host(self, anchor: Anchor) -> None:
        parts = self._parts
        tables = parts.host.sample(parts.rings.list_writers(), anchor.monotonic_ns)
        if len(tables.series):
            parts.shipper.add_host_samples(tables, anchor)

    def _send_metrics(self, anchor: Anchor) -> None:
        parts = self._parts
        if not parts.settings.sends_metrics:
            return
        if not parts.metrics.take_has_steps():
            parts.metrics.set_requests(*parts.telemetry.count_requests())
        for reading in parts.counters.read_all():
            if reading.is_gauge:
                parts.store.set_gauge(reading.name, reading.value, reading.labels)
            else:
                parts.store.set_counter(reading.name, reading.value, reading.labels)
        payload = encode_metrics(
            parts.resource,
            [*parts.store.read_all(), *parts.host.read_metrics()],
            self._find_start(anchor),
            anchor.realtime_ns,
            parts.version,
        )
        self._put(Parcel(Signal.METRICS, payload, 1), anchor.monotonic_ns)

    def _find_start(self, anchor: Anchor) -> int:
        """Return since when sums count. A clock set back to before that moves it, once."""
        if anchor.realtime_ns < self._started.realtime_ns:
            elapsed_ns = anchor.monotonic_ns - self._started.monotonic_ns
            self._started = Anchor(self._started.monotonic_ns, anchor.realtime_ns - elapsed_ns)
        return self._started.realtime_ns

    def _put(self, parcel: Parcel, now_ns: int) -> None:
        self._parts.budget.draw(len(parcel.payload), now_ns)
        self._parts.put(parcel)

    def _is_due(self, what: str, anchor: Anchor, every_s: float) -> bool:
        if anchor.monotonic_ns < self._next_ns[what]:
            return False
        self._next_ns[what] = anchor.monotonic_ns + round(every_s * 1e9)
        return True

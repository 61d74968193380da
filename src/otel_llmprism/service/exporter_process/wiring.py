# The exporter process on one screen: rings -> assembler -> ledger, spans, metrics -> outbox -> OTLP.
# This module alone says what is joined to what.
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from otel_llmprism import __version__
from otel_llmprism.config.ledger_folder import read_ledger_folder
from otel_llmprism.exporters.ledger_files import LedgerFiles, LedgerFilesConfig
from otel_llmprism.exporters.otlp_client import OtlpClient
from otel_llmprism.exporters.otlp_client_environment import read_client_configs
from otel_llmprism.exporters.request_spans import RequestTexts, describe_requests
from otel_llmprism.exporters.step_spans import StepOrigin
from otel_llmprism.model.signals import Signal
from otel_llmprism.model.steps import Anchor
from otel_llmprism.native.ledger_frames import SegmentOwner
from otel_llmprism.native.ring import read_clocks
from otel_llmprism.native.ring_writer import read_start_ticks
from otel_llmprism.native.run_folder import RunDescription
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler, RingAssemblerConfig
from otel_llmprism.service.exporter_process.byte_budget import ByteBudget
from otel_llmprism.service.exporter_process.engine_metrics import EngineMetrics
from otel_llmprism.service.exporter_process.engine_telemetry import EngineTelemetry
from otel_llmprism.service.exporter_process.gpu_watch import start_gpu_watch
from otel_llmprism.service.exporter_process.host_watch import HostWatch
from otel_llmprism.service.exporter_process.kept_step_spans import KeptStepSpans
from otel_llmprism.service.exporter_process.ledger_shipper import LedgerShipper
from otel_llmprism.service.exporter_process.loop import ExporterLoop, LoopParts
from otel_llmprism.service.exporter_process.metric_store import MetricStore
from otel_llmprism.service.exporter_process.outbox import Outbox, Parcel
from otel_llmprism.service.exporter_process.placement import Placement
from otel_llmprism.service.exporter_process.request_book import RequestBook
from otel_llmprism.service.exporter_process.resource import build_resource
from otel_llmprism.service.exporter_process.ring_watch import RingWatch
from otel_llmprism.service.exporter_process.settings import ExporterSettings

_BURST_S = 10.0


def build_outbox(environment: Mapping[str, str], settings: ExporterSettings, counters: Counters) -> Outbox:
    """Return the way out that OTEL_EXPORTER_OTLP_* describe; ConfigError when they cannot work."""
    configs = read_client_configs(environment)
    client = OtlpClient(configs[Signal.TRACES], configs)
    return Outbox(client, counters, settings.queue_bytes)


def build_loop(
    folder: Path,
    run: RunDescription,
    environment: Mapping[str, str],
    *,
    settings: ExporterSettings,
    counters: Counters,
    put: Callable[[Parcel], None],
    read_anchor: Callable[[], Anchor] = lambda: Anchor(*read_clocks()),
) -> ExporterLoop:
    """Join the parts for one run folder; `put` takes what leaves and never blocks."""
    node = socket.gethostname()
    resource = build_resource(run, environment, node, __version__)
    texts = RequestTexts(run.operation, run.engine_name, run.model)
    store, book = MetricStore(), RequestBook(counters)
    metrics = EngineMetrics(store, texts)
    budget = ByteBudget(settings.budget_bytes_per_s, _BURST_S, read_anchor().monotonic_ns)
    run_id = bytes.fromhex(run.run)
    owner = SegmentOwner(run.engine_id, run.run, node, resource, describe_requests(texts))
    files = build_ledger_files(environment, owner, counters)
    parts = LoopParts(
        settings=settings,
        resource=resource,
        version=__version__,
        rings=RingWatch(folder, counters),
        assembler=RingAssembler(counters, RingAssemblerConfig(expected_ranks=run.ranks)),
        telemetry=EngineTelemetry(texts, metrics, book, KeptStepSpans(book, metrics, budget, counters)),
        metrics=metrics,
        store=store,
        counters=counters,
        budget=budget,
        shipper=LedgerShipper(folder, node, resource, files.append, version=__version__, counters=counters),
        put=put,
        host=HostWatch(
            Placement(), start_gpu_watch(environment.get("CUDA_VISIBLE_DEVICES"), settings.host_s)
        ),
        read_anchor=read_anchor,
        is_engine_gone=lambda: read_start_ticks(run.starter_pid) != run.starter_ticks,
        build_origin=lambda anchor: StepOrigin(run.engine_id, run_id, anchor),
    )
    return ExporterLoop(parts)


def build_ledger_files(
    environment: Mapping[str, str], owner: SegmentOwner, counters: Counters
) -> LedgerFiles:
    """Return where the ledger is kept on this node; ConfigError when the bound cannot be read."""
    kept = read_ledger_folder(environment)
    return LedgerFiles(LedgerFilesConfig(kept.folder, kept.max_bytes), owner, counters)

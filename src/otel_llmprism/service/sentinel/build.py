# The whole sentinel of a service put together: what the pipeline's stages, the runner and the page get of it.
from collections import deque
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from uuid import uuid4

from otel_llmprism.native.otlp import Scan
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ports import Ingress
from otel_llmprism.receivers.ledger import HostBatch, LedgerBatch
from otel_llmprism.service.control_book import ControlBook
from otel_llmprism.service.sentinel.board import Order, SentinelBoard
from otel_llmprism.service.sentinel.config import SentinelConfig
from otel_llmprism.service.sentinel.core import CoreConfig, SentinelCore
from otel_llmprism.service.sentinel.desk import Desk
from otel_llmprism.service.sentinel.emission import Emission
from otel_llmprism.service.sentinel.facts import read_facts
from otel_llmprism.service.sentinel.ledger_queue import LedgerQueue
from otel_llmprism.service.sentinel.metrics import SentinelMetrics
from otel_llmprism.service.sentinel.outbox import Outbox
from otel_llmprism.service.sentinel.parts import Parts
from otel_llmprism.service.sentinel.resource_book import ResourceBook
from otel_llmprism.service.sentinel.shell import SentinelShell
from otel_llmprism.service.sentinel.state import dump_state, load_state
from otel_llmprism.service.sentinel.state_files import StateFiles
from otel_llmprism.service.sentinel.step_spans import StepSpans
from otel_llmprism.service.sentinel.training import ProcessTrainer
from otel_llmprism.service.sentinel.verdict_book import VerdictBook

_MAX_ORDERS = 1000


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the sentinel gets of its service. `folder` None: nothing is stored."""

    ingress: Ingress
    control: ControlBook
    counters: Counters
    folder: Path | None


class SentinelService:
    """A Source; `take` and `note_request` are the pipeline's, `board` the page's. Built, not yet started."""

    def __init__(self, config: SentinelConfig, around: Surroundings, parts: Parts) -> None:
        self.verdicts = VerdictBook()
        self._resources = ResourceBook()
        self._orders: deque[Order] = deque(maxlen=_MAX_ORDERS)
        self.board = SentinelBoard(self._orders.append)
        self._queue = LedgerQueue(config.queue_bytes, around.counters)
        self._trainer = ProcessTrainer(config.train_max_bytes, config.train_timeout_s, around.counters)
        self._core = SentinelCore(
            CoreConfig(config.max_engines), parts, self._trainer, around.counters, lambda: uuid4().hex
        )
        self._files = StateFiles(around.folder, around.counters)
        self._shell = self._build_shell(config, around)

    def start(self) -> None:
        """Take over what was stored and begin."""
        for stored in self._files.load_models():
            self._core.models.adopt(stored)
        load_state(self._core, self.board, self._files.load_state())
        self._shell.start()

    def stop(self, deadline_ns: int) -> None:
        self._shell.stop(deadline_ns)

    def take(self, batch: LedgerBatch | HostBatch, arrived_ns: int) -> None:
        """Take what the ledger stage read; never waits."""
        self._queue.put(batch, arrived_ns)

    def note_request(self, payload: bytes, found: Scan) -> None:
        """Take in who speaks in a request with ledger records; before its batches."""
        self._resources.note_request(payload, found)

    def _build_shell(self, config: SentinelConfig, around: Surroundings) -> SentinelShell:
        counters = around.counters
        outbox = Outbox(around.ingress, counters)
        steps = StepSpans(config.slow_step_rate, config.span_rate_bytes, counters)
        metrics = SentinelMetrics(counters, config.max_engines)
        emission = Emission(self._core, self._resources, steps, metrics, version=_find_version())
        desk = Desk(
            self._core,
            emission,
            outbox,
            verdicts=self.verdicts,
            board=self.board,
            control=around.control,
            files=self._files,
            deep_dive_steps=config.deep_dive_steps,
        )
        return SentinelShell(
            self._queue,
            self._core,
            desk,
            outbox,
            prepare=self._prepare,
            save=lambda: self._files.save_state(dump_state(self._core, self.board)),
            follow_orders=self._follow_orders,
            close=self._trainer.close,
            counters=counters,
        )

    def _prepare(self, batch: LedgerBatch | HostBatch) -> None:
        """Let the core know who an engine is before its first batch."""
        engine_id, run = batch.source.engine_id, batch.source.run
        if engine_id not in self._core.watches.facts:
            self._core.watches.note_facts(
                engine_id, read_facts(self._resources.find(engine_id, run), engine_id)
            )

    def _follow_orders(self, now_ns: int) -> None:
        del now_ns
        while self._orders:
            self._core.follow(*self._orders.popleft())


def _find_version() -> str:
    try:
        return version("otel-llmprism")
    except PackageNotFoundError:
        return ""

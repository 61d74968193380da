# The sentinel's fixed place in a service: switched on, off or over while data flows. What the stages, the
# runner and the page hold is this; the one behind it may change.
import time
from collections.abc import Callable, Sequence

from otel_llmprism.model.findings import Finding
from otel_llmprism.native.otlp import Scan
from otel_llmprism.receivers.ledger import HostBatch, LedgerBatch
from otel_llmprism.service.query.sentinel_view import (
    BlockView,
    EngineView,
    FindingView,
    NoSentinel,
    SentinelView,
)
from otel_llmprism.service.sentinel.build import SentinelService
from otel_llmprism.service.sentinel.config import SentinelConfig
from otel_llmprism.service.sentinel.verdict_book import VerdictBook

_GRACE_NS = 3_000_000_000
Build = Callable[[SentinelConfig], SentinelService]


class SentinelSwitch:
    """A Source; `build` makes a sentinel, or raises what is wrong with its configuration."""

    def __init__(self, config: SentinelConfig, build: Build) -> None:
        self._build = build
        self._is_running = False
        self._current = build(config) if config.enabled else None
        self._no_verdicts = VerdictBook()
        self.view = SwitchedView(self)

    def start(self) -> None:
        self._is_running = True
        if self._current is not None:
            self._current.start()

    def stop(self, deadline_ns: int) -> None:
        self._is_running = False
        if self._current is not None:
            self._current.stop(deadline_ns)

    def switch(self, config: SentinelConfig) -> None:
        """Run by `config` from now on; the old one keeps its state for the new one."""
        following = self._build(config) if config.enabled else None
        old, self._current = self._current, None
        if old is not None:
            old.stop(time.monotonic_ns() + _GRACE_NS)
        if following is not None and self._is_running:
            following.start()
        self._current = following

    def take(self, batch: LedgerBatch | HostBatch) -> None:
        """Take what the ledger stage read, with the time; never waits."""
        if (current := self._current) is not None:
            current.take(batch, time.time_ns())

    def note_request(self, payload: bytes, found: Scan) -> None:
        if (current := self._current) is not None:
            current.note_request(payload, found)

    @property
    def verdicts(self) -> VerdictBook:
        return self._no_verdicts if (current := self._current) is None else current.verdicts

    @property
    def board(self) -> SentinelView:
        return NoSentinel() if (current := self._current) is None else current.board


class SwitchedView:
    """Implements SentinelView over whichever sentinel runs."""

    def __init__(self, place: SentinelSwitch) -> None:
        self._place = place

    def list_engines(self) -> Sequence[EngineView]:
        return self._place.board.list_engines()

    def read_series(self, engine_id: str, begin_ns: int, end_ns: int) -> Sequence[BlockView] | None:
        return self._place.board.read_series(engine_id, begin_ns, end_ns)

    def list_findings(self) -> Sequence[FindingView]:
        return self._place.board.list_findings()

    def read_finding(self, finding_id: str) -> tuple[FindingView, Sequence[Finding]] | None:
        return self._place.board.read_finding(finding_id)

    def acknowledge(self, finding_id: str) -> bool:
        return self._place.board.acknowledge(finding_id)

    def dismiss(self, finding_id: str) -> bool:
        return self._place.board.dismiss(finding_id)

    def silence(self, finding_id: str, until_ns: int) -> bool:
        return self._place.board.silence(finding_id, until_ns)

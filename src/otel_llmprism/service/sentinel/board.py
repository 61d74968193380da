# What the page sees: engines, blocks of about a second, findings with their history. The sentinel's thread
# writes, answers of the page read; everything is bounded. Implements SentinelView.
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from otel_llmprism.exporters.finding_spans import derive_finding_trace_id
from otel_llmprism.model.findings import Finding, FindingState
from otel_llmprism.service.query.sentinel_view import BlockView, EngineView, FindingView
from otel_llmprism.service.sentinel.blocks import EngineBlocks
from otel_llmprism.service.sentinel.news import News

_MAX_ENGINES, _MAX_FINDINGS, _MAX_HISTORY = 500, 1000, 64
Order = tuple[str, str, int]  # what a person asked for: action, finding, until


class SentinelBoard:
    """Thread-safe. `order` hands what a person decides to the sentinel's thread."""

    def __init__(self, order: Callable[[Order], None]) -> None:
        self._order = order
        self._lock = threading.Lock()
        self._engines: dict[str, EngineView] = {}
        self._blocks: OrderedDict[str, EngineBlocks] = OrderedDict()
        self._findings: OrderedDict[str, FindingView] = OrderedDict()
        self._history: dict[str, deque[Finding]] = {}

    def take(self, news: News, engines: Sequence[EngineView] | None) -> None:
        """Take in what is new; `engines`, when given, are all there are."""
        with self._lock:
            for batch in news.batches:
                self._find_blocks(batch.source.engine_id).add(batch)
            for told in news.readings:
                self._find_blocks(told.source.engine_id).mark(told)
            for finding in news.findings:
                self._note(finding)
            if engines is not None:
                self._engines = {engine.id: engine for engine in engines}

    def restore(self, views: Sequence[FindingView]) -> None:
        """Begin with the findings of an earlier run."""
        with self._lock:
            for view in views:
                self._note(view.finding)
                self._findings[view.finding.id] = view

    def list_engines(self) -> Sequence[EngineView]:
        with self._lock:
            return sorted(self._engines.values(), key=lambda engine: engine.id)

    def read_series(self, engine_id: str, begin_ns: int, end_ns: int) -> Sequence[BlockView] | None:
        with self._lock:
            blocks = self._blocks.get(engine_id)
            if blocks is None:
                return [] if engine_id in self._engines else None
            return blocks.read(begin_ns, end_ns)

    def list_findings(self) -> Sequence[FindingView]:
        with self._lock:
            return list(reversed(self._findings.values()))

    def read_finding(self, finding_id: str) -> tuple[FindingView, Sequence[Finding]] | None:
        with self._lock:
            view = self._findings.get(finding_id)
            return None if view is None else (view, list(self._history[finding_id]))

    def acknowledge(self, finding_id: str) -> bool:
        return self._say("acknowledge", finding_id, lambda view: replace(view, is_acknowledged=True))

    def dismiss(self, finding_id: str) -> bool:
        return self._say("dismiss", finding_id, lambda view: replace(view, is_dismissed=True))

    def silence(self, finding_id: str, until_ns: int) -> bool:
        return self._say(
            "silence", finding_id, lambda view: replace(view, silenced_until_ns=until_ns), until_ns
        )

    def _say(
        self, action: str, finding_id: str, change: Callable[[FindingView], FindingView], until_ns: int = 0
    ) -> bool:
        with self._lock:
            view = self._findings.get(finding_id)
            if view is None:
                return False
            self._findings[finding_id] = change(view)
        self._order((action, finding_id, until_ns))
        return True

    def _note(self, finding: Finding) -> None:
        known = self._findings.get(finding.id)
        trace_id = derive_finding_trace_id(finding.id).hex()
        view = FindingView(finding, trace_id=trace_id) if known is None else replace(known, finding=finding)
        self._findings[finding.id] = view
        self._findings.move_to_end(finding.id)
        self._history.setdefault(finding.id, deque(maxlen=_MAX_HISTORY)).append(finding)
        if len(self._findings) > _MAX_FINDINGS:
            self._forget_finding()

    def _forget_finding(self) -> None:
        closed = (key for key, view in self._findings.items() if view.finding.state is FindingState.CLOSED)
        oldest = next(closed, next(iter(self._findings)))
        del self._findings[oldest], self._history[oldest]

    def _find_blocks(self, engine_id: str) -> EngineBlocks:
        blocks = self._blocks.get(engine_id)
        if blocks is None:
            blocks = self._blocks[engine_id] = EngineBlocks()
            if len(self._blocks) > _MAX_ENGINES:
                self._blocks.popitem(last=False)
        return blocks

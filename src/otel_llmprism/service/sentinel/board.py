# What the page may ask, and what a person decides on it: implements SentinelView over two shelves that the
# sentinel's thread fills; decisions wait for that thread.
from collections.abc import Callable, Sequence
from dataclasses import replace

from otel_llmprism.model.findings import Finding
from otel_llmprism.service.query.sentinel_view import BlockView, EngineView, FindingView
from otel_llmprism.service.sentinel.engine_shelf import EngineShelf
from otel_llmprism.service.sentinel.finding_shelf import FindingShelf

Order = tuple[str, str, int]  # what a person asked for: action, finding, until


class SentinelBoard:
    """Thread-safe. `order` hands on what a person decides."""

    def __init__(self, order: Callable[[Order], None]) -> None:
        self._order = order
        self.engines = EngineShelf()
        self.findings = FindingShelf()

    def list_engines(self) -> Sequence[EngineView]:
        return self.engines.list_views()

    def read_series(self, engine_id: str, begin_ns: int, end_ns: int) -> Sequence[BlockView] | None:
        return self.engines.read(engine_id, begin_ns, end_ns)

    def list_findings(self) -> Sequence[FindingView]:
        return self.findings.list_views()

    def read_finding(self, finding_id: str) -> tuple[FindingView, Sequence[Finding]] | None:
        return self.findings.read(finding_id)

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
        if not self.findings.change(finding_id, change):
            return False
        self._order((action, finding_id, until_ns))
        return True

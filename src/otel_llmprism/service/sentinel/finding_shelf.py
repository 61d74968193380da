# Findings as the page sees them: the newest state of each, its history, what people said. Thread-safe and
# bounded.
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from otel_llmprism.exporters.finding_spans import derive_finding_trace_id
from otel_llmprism.model.findings import Finding, FindingState
from otel_llmprism.service.query.sentinel_view import FindingView

_MAX_FINDINGS, _MAX_HISTORY = 1000, 64


class FindingShelf:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._findings: OrderedDict[str, FindingView] = OrderedDict()
        self._history: dict[str, deque[Finding]] = {}

    def note(self, findings: Sequence[Finding]) -> None:
        """Take in new states."""
        with self._lock:
            for finding in findings:
                self._note(finding)

    def restore(self, views: Sequence[FindingView]) -> None:
        """Begin with the findings of an earlier run."""
        with self._lock:
            for view in views:
                self._note(view.finding)
                self._findings[view.finding.id] = view

    def list_views(self) -> list[FindingView]:
        """Return all, newest change first."""
        with self._lock:
            return list(reversed(self._findings.values()))

    def read(self, finding_id: str) -> tuple[FindingView, list[Finding]] | None:
        with self._lock:
            view = self._findings.get(finding_id)
            return None if view is None else (view, list(self._history[finding_id]))

    def change(self, finding_id: str, change: Callable[[FindingView], FindingView]) -> bool:
        """Change what people said about a finding; False when there is none."""
        with self._lock:
            view = self._findings.get(finding_id)
            if view is not None:
                self._findings[finding_id] = change(view)
            return view is not None

    def is_silenced(self, finding: Finding, now_ns: int) -> bool:
        """Tell whether a person wants to hear nothing of this cause now."""
        with self._lock:
            return any(
                view.silenced_until_ns is not None
                and now_ns < view.silenced_until_ns
                and _name_cause(view.finding) == _name_cause(finding)
                for view in self._findings.values()
            )

    def _note(self, finding: Finding) -> None:
        known = self._findings.get(finding.id)
        trace_id = derive_finding_trace_id(finding.id).hex()
        view = FindingView(finding, trace_id=trace_id) if known is None else replace(known, finding=finding)
        self._findings[finding.id] = view
        self._findings.move_to_end(finding.id)
        self._history.setdefault(finding.id, deque(maxlen=_MAX_HISTORY)).append(finding)
        if len(self._findings) > _MAX_FINDINGS:
            self._forget()

    def _forget(self) -> None:
        closed = (key for key, view in self._findings.items() if view.finding.state is FindingState.CLOSED)
        oldest = next(closed, next(iter(self._findings)))
        del self._findings[oldest], self._history[oldest]


def _name_cause(finding: Finding) -> tuple[str, str, str, str]:
    return finding.engine_id, finding.kind, finding.subject.type, finding.subject.id

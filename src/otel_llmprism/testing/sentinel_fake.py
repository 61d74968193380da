# A sentinel with made-up engines and findings, for the page and its tests: same seed and time, same answers.
# Implements service.query.sentinel_view.SentinelView; what is made up is in the modules beside.
import dataclasses
import threading
from collections.abc import Callable, Sequence

from otel_llmprism.model.findings import Finding, FindingState
from otel_llmprism.service.query.sentinel_view import BlockView, EngineView, FindingView
from otel_llmprism.testing.sentinel_fake_findings import FakeIncident, build_incidents
from otel_llmprism.testing.sentinel_fake_fleet import build_engines, make_blocks


class FakeSentinel:
    """Remembers what people say about its findings; shows what a test appends to `incidents`. Thread-safe."""

    def __init__(self, read_time_ns: Callable[[], int], seed: int = 7) -> None:
        self._read_time_ns = read_time_ns
        self._seed = seed
        self._lock = threading.Lock()
        self._engines = {engine.view.id: engine for engine in build_engines(read_time_ns())}
        self._findings: dict[str, FindingView] = {}
        self._histories: dict[str, list[Finding]] = {}
        self.incidents: list[FakeIncident] = build_incidents(read_time_ns())

    def list_engines(self) -> Sequence[EngineView]:
        with self._lock:
            return [
                dataclasses.replace(one.view, last_seen_ns=self._read_time_ns())
                for one in self._engines.values()
            ]

    def read_series(self, engine_id: str, begin_ns: int, end_ns: int) -> Sequence[BlockView] | None:
        engine = self._engines.get(engine_id)
        if engine is None:
            return None
        return make_blocks(engine, begin_ns, min(end_ns, self._read_time_ns()), self._seed)

    def list_findings(self) -> Sequence[FindingView]:
        with self._lock:
            self._take_over()
            return list(self._findings.values())

    def read_finding(self, finding_id: str) -> tuple[FindingView, Sequence[Finding]] | None:
        with self._lock:
            self._take_over()
            view = self._findings.get(finding_id)
            return None if view is None else (view, tuple(self._histories[finding_id]))

    def acknowledge(self, finding_id: str) -> bool:
        return self._change(finding_id, is_acknowledged=True)

    def dismiss(self, finding_id: str) -> bool:
        with self._lock:
            self._take_over()
            view = self._findings.get(finding_id)
            if view is None:
                return False
            closed = dataclasses.replace(
                view.finding, state=FindingState.CLOSED, closed_ns=self._read_time_ns()
            )
            self._histories[finding_id].append(closed)
            self._findings[finding_id] = dataclasses.replace(view, finding=closed, is_dismissed=True)
            return True

    def silence(self, finding_id: str, until_ns: int) -> bool:
        return self._change(
            finding_id, silenced_until_ns=until_ns if until_ns > self._read_time_ns() else None
        )

    def _change(self, finding_id: str, **changes: int | bool | None) -> bool:
        with self._lock:
            self._take_over()
            view = self._findings.get(finding_id)
            if view is not None:
                self._findings[finding_id] = dataclasses.replace(view, **changes)  # type: ignore[arg-type]
            return view is not None

    def _take_over(self) -> None:
        for incident in self.incidents[len(self._findings) :]:
            newest = incident.history[-1]
            self._findings[newest.id] = FindingView(newest, trace_id=incident.trace_id)
            self._histories[newest.id] = list(incident.history)

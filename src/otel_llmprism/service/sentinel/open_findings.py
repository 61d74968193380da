# Which findings are open now, by engine: for what is learned, and for what is said on requests.
from otel_llmprism.model.findings import Finding, FindingState
from otel_llmprism.service.sentinel.engine import EngineWatch, to_node_ns
from otel_llmprism.service.sentinel.request_watch import EndedOne

_MAX_OPEN = 1000


class OpenFindings:
    def __init__(self) -> None:
        self._open: dict[str, Finding] = {}

    def note(self, finding: Finding) -> None:
        self._open.pop(finding.id, None)
        if finding.state is not FindingState.CLOSED:
            self._open[finding.id] = finding
            if len(self._open) > _MAX_OPEN:
                del self._open[next(iter(self._open))]

    def list_open(self, engine_id: str | None = None) -> list[Finding]:
        """Return the open findings, or those that an engine has a part in."""
        known = self._open.values()
        return [one for one in known if engine_id is None or engine_id in list_engines(one)]

    def find_onset(self, engine_id: str) -> int | None:
        """Return when the first of an engine's open findings began."""
        return min((one.onset_ns for one in self.list_open(engine_id)), default=None)

    def name_finding(self, watch: EngineWatch, one: EndedOne) -> str:
        """Return the id of the finding that cost a request most, as far as it is known; else nothing."""
        hit = [
            finding
            for finding in self.list_open(watch.source.engine_id)
            if to_node_ns(watch.anchor, finding.onset_ns) <= one.life.ended_ns
        ]
        return max(hit, key=lambda finding: finding.excess_s).id if hit else ""


def list_engines(finding: Finding) -> tuple[str, ...]:
    return (finding.engine_id, *finding.engines)

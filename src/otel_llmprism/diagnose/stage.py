# The fleet of one processor: tables, scored steps and chart readings in, new states of incidents out. The
# only object here that keeps anything; time comes in as data. Bad data is counted, never raised.
from collections.abc import Callable, Sequence

from otel_llmprism.diagnose.facts.engine import EngineFacts
from otel_llmprism.diagnose.incidents.book import IncidentBook
from otel_llmprism.diagnose.incidents.desk import IncidentDesk
from otel_llmprism.diagnose.page_blocks import describe_blocks
from otel_llmprism.diagnose.records import dump_state, load_state
from otel_llmprism.diagnose.settings import S_NS, DiagnosisConfig, SourceKey
from otel_llmprism.model.charts import ChartReading
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.findings import Finding
from otel_llmprism.model.hosts import HostTables
from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.model.work import ScoredTable

_GRACE_NS = 15 * S_NS  # after a restart: what was open is not over because we were away


class MarkedBook:
    """What a person says about incidents. False: there is no such incident."""

    def __init__(self, book: IncidentBook) -> None:
        self._book = book
        self._now_ns = 0

    def acknowledge(self, incident_id: str) -> bool:
        """Note that somebody cares for it."""
        incident = self._book.incidents.get(incident_id)
        if incident is not None:
            incident.is_acknowledged = True
        return incident is not None

    def silence(self, incident_id: str, until_ns: int) -> bool:
        """Note until when nobody is to be told of it; it goes on being followed."""
        incident = self._book.incidents.get(incident_id)
        if incident is not None:
            incident.silenced_until_ns = until_ns
        return incident is not None

    def dismiss(self, incident_id: str) -> bool:
        """Close it as no incident; for an hour the same must be twice as bad to count."""
        incident = self._book.incidents.get(incident_id)
        if incident is not None:
            self._book.dismiss(incident, self._now_ns)
        return incident is not None


class Diagnosis(MarkedBook):
    """One thread's. `ids` makes the ids of incidents."""

    def __init__(self, config: DiagnosisConfig, ids: Callable[[], str]) -> None:
        book = IncidentBook(config, ids)
        super().__init__(book)
        self._config = config
        self._desk = IncidentDesk(config, book)
        self._engines: dict[str, EngineFacts] = {}
        self._counted: dict[str, int] = {}
        self._is_loaded = False

    def take_steps(
        self, source: SourceKey, tables: LedgerTables, scored: ScoredTable, anchor: Anchor
    ) -> None:
        """Take in a batch of the ledger and what was expected of its steps."""
        facts = self._find(source)
        if facts is not None:
            self._guard("steps", lambda: facts.take_steps(source.node, tables, scored, anchor))

    def take_host(self, source: SourceKey, tables: HostTables, anchor: Anchor) -> None:
        """Take in samples of one node beside the engine."""
        facts = self._find(source)
        if facts is not None:
            self._guard("host", lambda: facts.take_host(source.node, tables, anchor))

    def take_readings(self, source: SourceKey, readings: Sequence[ChartReading], anchor: Anchor) -> None:
        """Take in what the charts say, after the gate of false discoveries."""
        facts = self._find(source)
        if facts is not None:
            for reading in readings:
                self._guard("readings", lambda one=reading: facts.charts.take(one, anchor))  # type: ignore[misc]

    def decide(self, now_ns: int) -> list[Finding]:
        """Return new states of incidents, in order; call it after each round of data."""
        self._now_ns = now_ns
        if self._is_loaded:
            self._is_loaded = False
            earliest_ns = now_ns - int(self._config.close_after_s * S_NS) + _GRACE_NS
            for incident in self._book.incidents.values():
                incident.last_over_ns = max(incident.last_over_ns, earliest_ns)
        for facts in self._engines.values():
            self._guard("decisions", lambda one=facts: self._desk.review(one, now_ns))  # type: ignore[misc]
        self._desk.close_quiet(self._engines, now_ns)
        told, self._book.told = self._book.told, []
        return told

    def describe(self) -> dict[str, object]:
        """Return engines with their last minutes, marks on incidents, and what was not understood."""
        refused = sum(facts.bins.refused for facts in self._engines.values())
        hosts = [host for facts in self._engines.values() for host in facts.hosts.values()]
        refused += sum(host.ring.refused + host.rates.refused for host in hosts)
        return {
            "engines": [self._describe_engine(facts) for facts in self._engines.values()],
            "incidents": [
                {
                    "id": one.id,
                    "is_acknowledged": one.is_acknowledged,
                    "is_dismissed": one.is_dismissed,
                    "silenced_until_ns": one.silenced_until_ns,
                }
                for one in self._book.incidents.values()
            ],
            "counted": {**self._counted, "refused_values": refused, "refused_incidents": self._book.refused},
        }

    def dump(self) -> dict[str, object]:
        """Return what must survive a restart, as plain JSON values."""
        return dump_state(self._book, self._engines)

    def load(self, raw: object) -> None:
        """Go on from a dump; DiagnosisStateError in one line when it cannot be used."""
        self._engines = load_state(raw, self._book)
        self._is_loaded = True

    def _find(self, source: SourceKey) -> EngineFacts | None:
        """Return the engine's facts; a new run begins anew, since its steps and pids are others."""
        facts = self._engines.get(source.engine_id)
        if facts is None and len(self._engines) >= self._config.max_engines:
            self._count("engines_beyond_limit")
            return None
        if facts is None or facts.run != source.run:
            facts = EngineFacts(source.engine_id, source.run, source.node)
            self._engines[source.engine_id] = facts
        return facts

    def _guard(self, what: str, action: Callable[[], None]) -> None:
        """Data from outside may be anything: what cannot be understood costs that batch only."""
        try:
            action()
        except (ValueError, IndexError, KeyError, TypeError, OverflowError, ArithmeticError):
            self._count(f"failed_{what}")

    def _count(self, cause: str) -> None:
        self._counted[cause] = self._counted.get(cause, 0) + 1

    def _describe_engine(self, facts: EngineFacts) -> dict[str, object]:
        is_open = [
            one for one in self._book.incidents.values() if one.is_open and facts.engine_id in one.engines
        ]
        state = (
            "alarm" if facts.charts.has_alarm() else "watching" if facts.charts.has_limits() else "learning"
        )
        return {
            "id": facts.engine_id,
            "run": facts.run,
            "state": state,
            "steps": facts.seen,
            "findings_open": len(is_open),
            "last_seen_ns": facts.heard_ns,
            "blocks": describe_blocks(facts),
        }

# What a diagnosis must not forget over a restart -> plain JSON values and back. Reads what may be damaged.
from dataclasses import asdict, fields
from typing import Any

from otel_llmprism.diagnose.facts.engine import MAX_SPANS, EngineFacts
from otel_llmprism.diagnose.facts.reference import MAX_KEPT, Normal
from otel_llmprism.diagnose.incidents.book import Dismissal, IncidentBook
from otel_llmprism.diagnose.incidents.incident import Diagnosed, Incident
from otel_llmprism.diagnose.kinds import Domain, FindingKind
from otel_llmprism.model.findings import Affected, Evidence, StepRef, Subject

VERSION = 1
MAX_TEXT = 4096
MAX_ROWS = 4096


class DiagnosisStateError(ValueError):
    """A stored state that cannot be used; its text is one line."""


def dump_state(book: IncidentBook, engines: dict[str, EngineFacts]) -> dict[str, object]:
    """Return incidents, dismissals, and what each engine was in healthy time."""
    return {
        "version": VERSION,
        "incidents": [asdict(incident) for incident in book.incidents.values()],
        "dismissals": [{"key": list(key), **asdict(one)} for key, one in book.dismissals.items()],
        "engines": [_dump_engine(facts) for facts in engines.values()],
    }


def load_state(raw: object, book: IncidentBook) -> dict[str, EngineFacts]:
    """Fill the book and return the engines; DiagnosisStateError, and nothing changed, when damaged."""
    try:
        state = _read_mapping(raw)
        _check_version(state["version"])
        incidents = [_load_incident(row) for row in _read_rows(state["incidents"])]
        dismissals = [_load_dismissal(row) for row in _read_rows(state["dismissals"])]
        engines = [_load_engine(row) for row in _read_rows(state["engines"])]
    except DiagnosisStateError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        what = " ".join(str(error).split())[:120]
        raise DiagnosisStateError(f"diagnosis state is damaged: {type(error).__name__} {what}") from None
    book.incidents = {incident.id: incident for incident in incidents[: book.config.max_incidents]}
    book.dismissals = dict(dismissals)
    return {facts.engine_id: facts for facts in engines[: book.config.max_engines]}


def _check_version(version: object) -> None:
    if version != VERSION:
        raise DiagnosisStateError(f"diagnosis state: version {str(version)[:20]!r} is not {VERSION}")


def _dump_engine(facts: EngineFacts) -> dict[str, object]:
    normals = {key: [one.centre, one.spread, one.count] for key, one in facts.kept_normals.items()}
    return {
        "engine_id": facts.engine_id,
        "run": facts.run,
        "node": facts.node,
        "normals": normals,
        "unhealthy": [list(span) for span in facts.unhealthy],
        "last_step": facts.last_step,
    }


def _load_engine(raw: object) -> EngineFacts:
    row = _read_mapping(raw)
    facts = EngineFacts(_read_text(row["engine_id"]), _read_text(row["run"]), _read_text(row["node"]))
    for key, values in list(_read_mapping(row["normals"]).items())[:MAX_KEPT]:
        centre, spread, count = _read_rows(values)
        facts.kept_normals[_read_text(key)] = Normal(
            _read_number(centre), max(0.0, _read_number(spread)), _read_int(count)
        )
    spans = [_read_rows(span) for span in _read_rows(row["unhealthy"])[:MAX_SPANS]]
    facts.unhealthy = [(_read_int(first), _read_int(last)) for first, last in spans]
    facts.last_step = _read_int(row["last_step"])
    return facts


def _load_incident(raw: object) -> Incident:
    row = dict(_read_mapping(raw))
    names = {field.name for field in fields(Incident)}
    if set(row) != names:
        raise DiagnosisStateError(f"diagnosis state: an incident has {min(set(row) ^ names)!r} or lacks it")
    closed = row["closed_ns"]
    return Incident(
        id=_read_text(row["id"]),
        domain=Domain(_read_text(row["domain"])),
        engine_id=_read_text(row["engine_id"]),
        run=_read_text(row["run"]),
        diagnosed=_load_diagnosed(_read_mapping(row["diagnosed"])),
        accounted_ns={
            _read_text(key): _read_int(at) for key, at in _read_mapping(row["accounted_ns"]).items()
        },
        closed_ns=None if closed is None else _read_int(closed),
        engines=tuple(_read_text(one) for one in _read_rows(row["engines"])),
        steps=tuple(_load_step(_read_mapping(one)) for one in _read_rows(row["steps"])),
        is_acknowledged=row["is_acknowledged"] is True,
        is_dismissed=row["is_dismissed"] is True,
        onset_ns=_read_int(row["onset_ns"]),
        opened_ns=_read_int(row["opened_ns"]),
        updated_ns=_read_int(row["updated_ns"]),
        last_over_ns=_read_int(row["last_over_ns"]),
        occurrence=_read_int(row["occurrence"]),
        silenced_until_ns=_read_int(row["silenced_until_ns"]),
        excess_s=_read_number(row["excess_s"]),
        lost_request_s=_read_number(row["lost_request_s"]),
        share=_read_number(row["share"]),
        told_excess_s=_read_number(row["told_excess_s"]),
        worst_s=_read_number(row["worst_s"]),
    )


def _load_diagnosed(row: dict[str, Any]) -> Diagnosed:
    affected = _read_mapping(row["affected"])
    return Diagnosed(
        kind=FindingKind(_read_text(row["kind"])),
        subject=_load_subject(row["subject"]),
        explained=_read_number(row["explained"]),
        confidence=_read_number(row["confidence"]),
        summary=_read_text(row["summary"]),
        evidence=tuple(_load_evidence(_read_mapping(one)) for one in _read_rows(row["evidence"])),
        affected=Affected(
            ranks=tuple(_read_int(one) for one in _read_rows(affected["ranks"])),
            steps=tuple(_read_int(one) for one in _read_rows(affected["steps"])),
            requests=tuple(_read_text(one) for one in _read_rows(affected["requests"])),
        ),
    )


def _load_evidence(row: dict[str, Any]) -> Evidence:
    return Evidence(
        _read_text(row["signal"]),
        _read_number(row["observed"]),
        _read_number(row["expected"]),
        _read_text(row["unit"]),
        _read_text(row["detail"]),
    )


def _load_step(row: dict[str, Any]) -> StepRef:
    return StepRef(_read_text(row["run"]), _read_int(row["step"]), _read_text(row["why"]))


def _load_subject(raw: object) -> Subject:
    row = _read_mapping(raw)
    return Subject(_read_text(row["type"]), _read_text(row["id"]))


def _load_dismissal(raw: object) -> tuple[tuple[str, str, str, str], Dismissal]:
    row = _read_mapping(raw)
    kind, subject_type, subject_id, engine = (_read_text(one) for one in _read_rows(row["key"]))
    return (kind, subject_type, subject_id, engine), Dismissal(
        _read_int(row["until_ns"]),
        _read_number(row["bar"]),
        Domain(_read_text(row["domain"])),
        _read_text(row["engine_id"]),
    )


def _read_mapping(raw: object) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise TypeError(f"{type(raw).__name__} is not a mapping")
    return raw


def _read_rows(raw: object) -> list[Any]:
    if not isinstance(raw, list | tuple) or len(raw) > MAX_ROWS:
        raise TypeError("not a list, or too long")
    return list(raw)


def _read_text(raw: object) -> str:
    if not isinstance(raw, str) or len(raw) > MAX_TEXT:
        raise TypeError("not a text, or too long")
    return raw


def _read_int(raw: object) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool) or abs(raw) >= 1 << 63:
        raise TypeError("not a whole number")
    return raw


def _read_number(raw: object) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise TypeError("not a number")
    return float(raw)

# Engines, chart blocks and findings -> the JSON of our own API: the report's words for a finding, times as
# whole nanoseconds since 1970, and null for every number that is none.
import math
from collections.abc import Sequence
from typing import Any

from otel_llmprism.model.findings import Finding
from otel_llmprism.service.query.sentinel_view import BlockView, EngineView, FindingView

Json = dict[str, Any]


def to_engine(engine: EngineView) -> Json:
    model = engine.model
    return {
        "id": engine.id,
        "run": engine.run,
        "name": engine.name,
        "job": engine.job,
        "state": str(engine.state),
        "model": {
            "version": model.version,
            "trained_steps": model.trained_steps,
            "wanted_steps": model.wanted_steps,
            "error": _to_number(model.error),
            "note": model.note,
        },
        "steps": engine.steps,
        "findings_open": engine.findings_open,
        "last_seen_ns": engine.last_seen_ns,
    }


def to_block(block: BlockView) -> Json:
    """Return one chart block; work that nobody told is null."""
    return {
        "t_ns": block.t_ns,
        "kind": block.kind,
        "steps": block.steps,
        "observed_s": _to_number(block.observed_s),
        "expected_s": _to_number(block.expected_s),
        "upper_s": _to_number(block.upper_s),
        "excess_s": _to_number(block.excess_s),
        "gap_s": _to_number(block.gap_s),
        "prefill_tokens": _to_number(block.prefill_tokens),
        "decode_tokens": _to_number(block.decode_tokens),
        "kv_tokens": _to_number(block.kv_tokens),
        "waiting": _to_number(block.waiting),
        "running": _to_number(block.running),
        "is_alarm": block.is_alarm,
    }


def to_finding(view: FindingView) -> Json:
    """Return a finding as it stands now, with what people said about it."""
    return {
        **to_state(view.finding),
        "is_acknowledged": view.is_acknowledged,
        "is_dismissed": view.is_dismissed,
        "silenced_until_ns": view.silenced_until_ns,
        "trace_id": view.trace_id or None,
    }


def to_state(finding: Finding) -> Json:
    """Return one state of a finding: the report's keys, and those of the incident."""
    return {
        "id": finding.id,
        "kind": finding.kind,
        "subject": {"type": finding.subject.type, "id": finding.subject.id},
        "score": _to_number(finding.score),
        "confidence": _to_number(finding.confidence),
        "start_ns": finding.onset_ns,
        "end_ns": finding.updated_ns if finding.closed_ns is None else finding.closed_ns,
        "affected": _to_affected(finding),
        "evidence": [
            {
                "signal": one.signal,
                "observed": _to_number(one.observed),
                "expected": _to_number(one.expected),
                "unit": one.unit,
                "detail": one.detail,
            }
            for one in finding.evidence
        ],
        "summary": finding.summary,
        "state": str(finding.state),
        "engine": finding.engine_id,
        "engines": list(finding.engines or (finding.engine_id,)),
        "run": finding.run,
        "occurrence": finding.occurrence,
        "opened_ns": finding.opened_ns,
        "updated_ns": finding.updated_ns,
        "closed_ns": finding.closed_ns,
        "excess_s": _to_number(finding.excess_s),
        "lost_request_s": _to_number(finding.lost_request_s),
    }


def rank_findings(views: Sequence[FindingView]) -> list[FindingView]:
    """Return what still runs before what is closed, most request time lost first, then the newest."""

    def rate(view: FindingView) -> tuple[bool, float, float, int]:
        one = view.finding
        return (is_active(view), one.lost_request_s or 0.0, one.excess_s or 0.0, one.opened_ns)

    return sorted(views, key=rate, reverse=True)


def is_active(view: FindingView) -> bool:
    """Tell whether the incident still runs and nobody said that it is none."""
    return view.finding.state != "closed" and not view.is_dismissed


def _to_affected(finding: Finding) -> Json:
    return {
        "ranks": list(finding.affected.ranks),
        "steps": list(finding.affected.steps),
        "requests": list(finding.affected.requests),
    }


def _to_number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None

# What of the sentinel survives a restart of the processor: findings, charts, what is usual. Out of the core
# as JSON-able values, and back; what does not fit any more is passed over and learned again.
import logging
from collections.abc import Mapping
from typing import Any

from otel_llmprism.service.query.sentinel_view import FindingView
from otel_llmprism.service.sentinel.board import SentinelBoard
from otel_llmprism.service.sentinel.core import SentinelCore
from otel_llmprism.service.sentinel.finding_state import from_json, to_json

_LOG = logging.getLogger(__name__)
VERSION = 1


def dump_state(core: SentinelCore, board: SentinelBoard) -> dict[str, Any]:
    """Return what load_state takes."""
    return {
        "version": VERSION,
        "core": core.dump(),
        "findings": [
            {
                "finding": to_json(view.finding),
                "is_acknowledged": view.is_acknowledged,
                "is_dismissed": view.is_dismissed,
                "silenced_until_ns": view.silenced_until_ns,
                "trace_id": view.trace_id,
            }
            for view in reversed(board.list_findings())
        ],
    }


def load_state(core: SentinelCore, board: SentinelBoard, state: Mapping[str, Any]) -> None:
    """Take a dump over as far as it can be read."""
    if not state:
        return
    if state.get("version") != VERSION:
        _LOG.warning("the sentinel's state is of another version and is not used")
        return
    views = []
    told = state.get("findings")
    for raw in told if isinstance(told, list) else []:
        try:
            views.append(_read_view(raw))
        except (ValueError, TypeError, KeyError):
            _LOG.warning("a stored finding cannot be read and is left out")
    board.findings.restore(views)
    core.restore(state.get("core"), [view.finding for view in views])


def _read_view(raw: Mapping[str, Any]) -> FindingView:
    until_ns = raw["silenced_until_ns"]
    return FindingView(
        from_json(raw["finding"]),
        is_acknowledged=bool(raw["is_acknowledged"]),
        is_dismissed=bool(raw["is_dismissed"]),
        silenced_until_ns=None if until_ns is None else int(until_ns),
        trace_id=str(raw["trace_id"]),
    )

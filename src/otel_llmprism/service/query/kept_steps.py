# A finding's steps -> where the page finds each: its trace by the derived id, and whether the store holds it.
from collections.abc import Collection, Iterable
from typing import Any, Protocol

from otel_llmprism.exporters.store.connection_pool import QuestionTooLongError, StoreUnreadableError
from otel_llmprism.model.findings import Finding
from otel_llmprism.model.ids import derive_span_id, derive_step_trace_id
from otel_llmprism.semconv.step import SPAN_STEP

MAX_STEPS = 300
_Ids = tuple[bytes, bytes]


class SpanNames(Protocol):
    """The part of the store's reader in use."""

    def read_names(self, ids: Iterable[_Ids]) -> Collection[_Ids]: ...


def find_kept_steps(finding: Finding, reader: SpanNames | None) -> list[dict[str, Any]]:
    """Return the onset, the worst, the recovery and the affected steps.

    `is_stored` is null where it is unknown: without a store (`reader` None), or when it cannot be read.
    """
    wanted = [(ref.run, ref.step, ref.why) for ref in finding.steps]
    named = {(run, step) for run, step, _ in wanted}
    affected = ((finding.run, step, "affected") for step in finding.affected.steps)
    wanted += [one for one in affected if one[:2] not in named]
    places = [
        (run, step, why, _find_ids(finding.engine_id, run, step)) for run, step, why in wanted[-MAX_STEPS:]
    ]
    stored = _read_stored([ids for *_, ids in places if ids is not None], reader)
    return [
        {
            "run": run,
            "step": step,
            "why": why,
            "trace_id": None if ids is None else ids[0].hex(),
            "span_id": None if ids is None else ids[1].hex(),
            "is_stored": None if stored is None or ids is None else ids in stored,
        }
        for run, step, why, ids in places
    ]


def _find_ids(engine_id: str, run: str, step: int) -> _Ids | None:
    try:
        trace_id = derive_step_trace_id(engine_id, bytes.fromhex(run), step)
    except ValueError:  # a run that is no hexadecimal has no derived ids
        return None
    return trace_id, derive_span_id(trace_id, SPAN_STEP)


def _read_stored(ids: list[_Ids], reader: SpanNames | None) -> set[_Ids] | None:
    if reader is None:
        return None
    try:
        return set(reader.read_names(ids))
    except (QuestionTooLongError, StoreUnreadableError):  # the finding is worth showing without it
        return None

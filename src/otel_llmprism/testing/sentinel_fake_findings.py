# The findings that the fake sentinel tells of: one that runs and two that are over. Made up like its engines.
from dataclasses import dataclass, replace

from otel_llmprism.model.findings import Affected, Evidence, Finding, FindingState, StepRef, Subject
from otel_llmprism.testing.sentinel_fake_fleet import ALARMED, ONSET_AGO_S, QUIET, RUN

OPEN_FINDING, CLOSED_FINDING, REOPENED_FINDING = "f-cpu-1", "f-rank-1", "f-kv-1"
_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class FakeIncident:
    """Its states, oldest first."""

    history: tuple[Finding, ...]
    trace_id: str = ""


def build_incidents(now_ns: int) -> list[FakeIncident]:
    """Return the findings as they stand at `now_ns`."""
    return [_build_running(now_ns), _build_closed(now_ns), _build_reopened(now_ns)]


def _build_running(now_ns: int) -> FakeIncident:
    onset_ns = now_ns - ONSET_AGO_S * _SECOND
    opened = replace(
        _open(OPEN_FINDING, "cpu_contention", Subject("host", "node-1"), ALARMED, onset_ns),
        summary="Decode steps on chat-0 take 1.8 times what their work explains: its threads wait for CPU on "
        "node-1, where 9 threads share a core. Move other work away, or give the engine cores of its own.",
        evidence=(
            Evidence("llmprism.step.cycle", 0.0617, 0.0338, "s", "decode steps, 214 in alarm"),
            Evidence("cpu time of the engine's threads", 0.52, 0.97, "{ratio}", "of wall time"),
            Evidence("run queue", 9.4, 1.2, "{thread}", "per core"),
            Evidence("cgroup throttled", 0.0, 0.0, "s", "no quota was hit"),
            Evidence("alternative", 0.17, 0.83, "1", "memory_pressure host node-1"),
        ),
        affected=Affected((0, 1), tuple(range(60_990, 61_204)), ("req-71", "req-74", "req-80")),
        steps=(StepRef(RUN, 60_990, "onset"), StepRef(RUN, 61_102, "worst")),
    )
    more = replace(opened, state=FindingState.UPDATED, updated_ns=now_ns - 60 * _SECOND, score=4.8)
    newest = replace(more, updated_ns=now_ns, score=6.4, confidence=0.94)
    return FakeIncident(
        (
            opened,
            replace(more, excess_s=12.2, lost_request_s=292.8),
            replace(newest, excess_s=24.9, lost_request_s=597.6),
        ),
        "f1" * 16,
    )


def _build_closed(now_ns: int) -> FakeIncident:
    opened = replace(
        _open(CLOSED_FINDING, "slow_worker", Subject("rank", "1"), QUIET, now_ns - 1800 * _SECOND),
        summary="Rank 1 of chat-1/dp0 comes last to every sampled collective; the others wait 11 ms a step.",
        evidence=(Evidence("wait for rank 1", 0.0112, 0.0004, "s", "31 of 32 collectives"),),
        affected=Affected((1,), (31_004, 31_005)),
        steps=(StepRef(RUN, 31_004, "onset"),),
    )
    return FakeIncident((opened, replace(_close(opened, 95), lost_request_s=140.0)))


def _build_reopened(now_ns: int) -> FakeIncident:
    opened = replace(
        _open(REOPENED_FINDING, "kv_pressure", Subject("engine", QUIET), QUIET, now_ns - 900 * _SECOND),
        occurrence=1,
        summary="Requests on chat-1/dp0 wait since its KV cache is 98 % full; 14 were preempted in 10 s.",
        evidence=(Evidence("llmprism.engine.kv_usage", 0.98, 0.71, "{ratio}"),),
    )
    return FakeIncident((opened, _close(opened, 70)))


def _open(name: str, kind: str, subject: Subject, engine_id: str, onset_ns: int) -> Finding:
    opened_ns = onset_ns + 2 * _SECOND
    return Finding(
        id=name,
        kind=kind,
        subject=subject,
        engine_id=engine_id,
        run=RUN,
        state=FindingState.OPEN,
        occurrence=0,
        onset_ns=onset_ns,
        opened_ns=opened_ns,
        updated_ns=opened_ns,
        closed_ns=None,
        score=3.1,
        confidence=0.82,
        excess_s=1.4,
        lost_request_s=33.6,
        summary="",
        engines=(engine_id,),
    )


def _close(opened: Finding, seconds: int) -> Finding:
    closed_ns = opened.onset_ns + seconds * _SECOND
    return replace(opened, state=FindingState.CLOSED, updated_ns=closed_ns, closed_ns=closed_ns)

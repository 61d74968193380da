# How an incident lives: it closes, comes back, is merged, marked, and survives a restart.
import json
from typing import Any

import pytest

from otel_llmprism.diagnose import Diagnosis, DiagnosisStateError
from otel_llmprism.model.findings import FindingState

STEP_S = 0.08
S = 1_000_000_000


def list_states(told: list[Any]) -> list[tuple[str, str, int]]:
    states = [(one.id, str(one.state), one.occurrence) for one in told]
    return [one for place, one in enumerate(states) if one[1] != "updated" or place == 0]


def test_incident_closes_a_minute_after_it_is_over(stage: Any) -> None:
    theatre = stage.theatre()
    scene = stage.scene(seed=1, step_s=STEP_S, faults=[stage.fault("operator", 22.0, 30.0, 2.0)])
    theatre.play(scene, until_s=100.0)
    opened, closed = theatre.told[0], theatre.told[-1]
    assert list_states(theatre.told) == [(opened.id, "open", 0), (opened.id, "closed", 0)]
    assert closed.closed_ns is not None
    assert 88 <= (closed.closed_ns - stage.epoch_ns) / S <= 94
    assert {step.why for step in closed.steps} == {"onset", "worst", "recovery"}
    assert {step.run for step in closed.steps} == {scene.run}
    # Half of eight seconds was lost, to a dozen requests.
    assert closed.excess_s == pytest.approx(4.0, rel=0.25)
    assert closed.lost_request_s == pytest.approx(4.0 * 12, rel=0.35)


def test_incident_that_comes_back_within_ten_minutes_keeps_its_id(stage: Any) -> None:
    theatre = stage.theatre()
    faults = [stage.fault("operator", 22.0, 30.0, 2.0), stage.fault("operator", 130.0, 138.0, 2.0)]
    theatre.play(stage.scene(seed=2, step_s=STEP_S, faults=faults), until_s=220.0, every_s=0.5)
    name = theatre.told[0].id
    expected = [(name, "open", 0), (name, "closed", 0), (name, "open", 1), (name, "closed", 1)]
    assert list_states(theatre.told) == expected
    assert theatre.told[-1].onset_ns > stage.epoch_ns + 128 * S


def test_engines_on_one_host_share_one_finding(stage: Any) -> None:
    theatre = stage.theatre()
    scenes = [
        stage.scene(
            seed=seed,
            engine_id=f"engine-{seed}",
            faults=[stage.fault("burn", 22.0 + seed / 10, 60.0, 2.0)],
        )
        for seed in (1, 2, 3)
    ]
    theatre.play(*scenes, until_s=32.0)
    assert [(one.kind, one.subject.id) for one in theatre.list_opened()] == [("cpu_contention", "host-a")]
    assert set(theatre.told[-1].engines) == {"engine-1", "engine-2", "engine-3"}


def test_two_faults_on_two_engines_are_two_findings(stage: Any) -> None:
    theatre = stage.theatre()
    throttled = stage.scene(seed=5, engine_id="a", faults=[stage.fault("throttle", 22.0, 60.0, 2.0)])
    delayed = stage.scene(
        seed=6, engine_id="b", node="host-b", faults=[stage.fault("scheduler", 22.4, 60.0, 2.0)]
    )
    theatre.play(throttled, delayed, until_s=30.0)
    found = {(str(one.kind), one.subject.id) for one in theatre.list_opened()}
    assert found == {("cpu_throttle", "a"), ("scheduler_delay", "b")}


def test_slow_rank_and_slow_front_end_of_one_engine_are_two_findings(stage: Any) -> None:
    theatre = stage.theatre()
    faults = [stage.fault("slow_rank", 22.0, 60.0, 2.0, rank=1), stage.fault("front_end", 23.0, 60.0, 3.0)]
    theatre.play(stage.scene(seed=7, ranks=2, faults=faults), until_s=36.0)
    found = [(str(one.kind), one.subject.id) for one in theatre.list_opened()]
    assert found == [("slow_worker", "1"), ("frontend_delay", "engine-a")]


def test_queue_behind_slow_steps_is_their_victim(stage: Any) -> None:
    theatre = stage.theatre()
    faults = [stage.fault("operator", 22.0, 60.0, 2.0), stage.fault("overload", 23.0, 60.0, 1.5)]
    theatre.play(stage.scene(seed=8, faults=faults), until_s=40.0)
    assert [str(one.kind) for one in theatre.list_opened()] == ["step_regression"]


def test_one_step_that_takes_far_too_long_is_an_incident(stage: Any) -> None:
    theatre = stage.theatre()
    scene = stage.scene(seed=9, faults=[stage.fault("one_noisy_step", 22.0, 22.03, 40.0)])
    theatre.play(scene, until_s=30.0)
    (first,) = theatre.list_opened()
    assert first.kind == "step_regression"
    assert first.opened_ns - stage.epoch_ns < 25 * S


def test_acknowledged_and_silenced_are_shown_and_unknown_ids_are_refused(stage: Any) -> None:
    theatre = stage.theatre()
    scene = stage.scene(seed=10, step_s=STEP_S, faults=[stage.fault("operator", 22.0, 60.0, 2.0)])
    theatre.play(scene, until_s=26.0)
    name = theatre.told[0].id
    assert theatre.diagnosis.acknowledge(name)
    assert theatre.diagnosis.silence(name, stage.epoch_ns + 500 * S)
    assert not theatre.diagnosis.acknowledge("nobody")
    assert not theatre.diagnosis.silence("nobody", 1)
    assert not theatre.diagnosis.dismiss("nobody")
    assert theatre.diagnosis.describe()["incidents"] == [
        {
            "id": name,
            "is_acknowledged": True,
            "is_dismissed": False,
            "silenced_until_ns": stage.epoch_ns + 500 * S,
        }
    ]


def test_dismissed_incident_is_closed_and_does_not_come_back_alike(stage: Any) -> None:
    theatre = stage.theatre()
    scene = stage.scene(seed=11, step_s=STEP_S, faults=[stage.fault("operator", 22.0, 90.0, 1.6)])
    moments = scene.play(60.0)
    for at, tell in moments:
        tell(theatre.diagnosis)
        theatre.told += theatre.diagnosis.decide(stage.epoch_ns + int(at * S))
        if theatre.told and len(theatre.list_opened()) == 1 and at == 30.0:
            theatre.diagnosis.dismiss(theatre.told[0].id)
    assert [one.state for one in theatre.told if one.state is not FindingState.UPDATED] == [
        FindingState.OPEN,
        FindingState.CLOSED,
    ]


def restart(diagnosis: Diagnosis, stage: Any) -> Diagnosis:
    again: Diagnosis = stage.diagnosis()
    again.load(json.loads(json.dumps(diagnosis.dump())))
    return again


def test_restart_in_the_middle_of_an_incident_neither_opens_nor_forgets(stage: Any) -> None:
    theatre = stage.theatre()
    scene = stage.scene(seed=12, faults=[stage.fault("burn", 22.0, 40.0, 2.0)])
    for at, tell in scene.play(110.0, 0.5):
        if at == 30.0:
            theatre.diagnosis = restart(theatre.diagnosis, stage)
        tell(theatre.diagnosis)
        theatre.told += theatre.diagnosis.decide(stage.epoch_ns + int(at * S))
    (name,) = {one.id for one in theatre.told}
    assert list_states(theatre.told) == [(name, "open", 0), (name, "closed", 0)]
    assert {one.kind for one in theatre.told} == {"cpu_contention"}


def test_incident_is_not_over_because_the_processor_was_away(stage: Any) -> None:
    theatre = stage.theatre()
    scene = stage.scene(seed=13, step_s=STEP_S, faults=[stage.fault("operator", 22.0, 400.0, 2.0)])
    for at, tell in scene.play(170.0, 0.5):
        if at == 30.0:
            theatre.diagnosis = restart(theatre.diagnosis, stage)
        if not 30.0 <= at < 150.0:
            tell(theatre.diagnosis)
            theatre.told += theatre.diagnosis.decide(stage.epoch_ns + int(at * S))
    assert FindingState.CLOSED not in {one.state for one in theatre.told}


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.update(version=99),
        lambda state: state.pop("engines"),
        lambda state: state.update(incidents=3),
        lambda state: state["incidents"][0].pop("id"),
        lambda state: state["incidents"][0].update(onset_ns="yesterday"),
        lambda state: state["incidents"][0].update(domain="moon\nand stars"),
        lambda state: state["incidents"][0]["diagnosed"].update(kind="gremlins"),
        lambda state: state["engines"][0]["normals"].update(x=[1, 2]),
        lambda state: state["engines"][0].update(unhealthy=[[1, 2, 3]]),
    ],
)
def test_damaged_state_is_refused_with_one_line(stage: Any, damage: Any) -> None:
    theatre = stage.theatre()
    scene = stage.scene(seed=14, step_s=STEP_S, faults=[stage.fault("operator", 22.0, 60.0, 2.0)])
    theatre.play(scene, until_s=26.0)
    state = json.loads(json.dumps(theatre.diagnosis.dump()))
    damage(state)
    again = stage.diagnosis()
    with pytest.raises(DiagnosisStateError) as refused:
        again.load(state)
    assert "\n" not in str(refused.value)
    assert again.dump()["incidents"] == []


@pytest.mark.parametrize("raw", [None, 3, [], "text", {"version": 1}])
def test_what_is_no_state_is_refused(stage: Any, raw: object) -> None:
    with pytest.raises(DiagnosisStateError):
        stage.diagnosis().load(raw)


def test_merely_late_evidence_names_an_open_incident_anew_under_its_id(stage: Any) -> None:
    theatre = stage.theatre()
    scene = stage.scene(seed=15, faults=[stage.fault("throttle", 22.0, 60.0, 2.0)])
    scene.has_host = False
    for at, tell in scene.play(40.0):
        scene.has_host = at < 22.0 or at > 26.0  # the host falls silent when it matters
        tell(theatre.diagnosis)
        theatre.told += theatre.diagnosis.decide(stage.epoch_ns + int(at * S))
    assert len({one.id for one in theatre.told}) == 1
    assert [str(one.kind) for one in theatre.told if one.state is FindingState.OPEN] == ["step_regression"]
    assert theatre.told[-1].kind == "cpu_throttle"

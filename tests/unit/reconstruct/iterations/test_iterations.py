# Iterations recognised in streams of a made-up engine, and not where there are none.
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otel_llmprism.native.ring_codes import StepKind
from otel_llmprism.reconstruct.iterations import (
    Activity,
    Evidence,
    recognize_by_anchor,
    recognize_by_kernel_names,
    recognize_by_period,
    recognize_iterations,
)

MS = 1_000_000
Make = Callable[..., Any]
MakeActivity = Callable[[list[tuple[str, float, float, int]]], Activity]
MIXED = "p" + "d" * 7 + "pp" + "d" * 9 + "p" + "d" * 12


def read_kinds(letters: str) -> list[int]:
    return [StepKind.PREFILL if letter == "p" else StepKind.DECODE for letter in letters]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("jitter", [0.0, 0.05, 0.3])
def test_anchor_is_found_in_spite_of_jitter(make_engine: Make, seed: int, jitter: float) -> None:
    engine = make_engine(seed=seed, jitter=jitter).run(MIXED)
    found = recognize_by_anchor(engine.read_ranges())
    assert found.anchor == "run_batch"
    assert found.iterations.begin_ns.tolist() == engine.begins
    assert found.iterations.kind.tolist() == read_kinds(MIXED)
    assert found.iterations.confidence.min() > 0.7
    assert np.all(found.iterations.end_ns[:-1] <= found.iterations.begin_ns[1:])


def test_outermost_of_nested_anchors_is_chosen(make_engine: Make) -> None:
    engine = make_engine().run("d" * 20)
    found = recognize_by_anchor(engine.read_ranges())
    assert found.anchor == "run_batch"  # not get_next_batch, forward_decode or sample inside it


def test_loop_around_all_iterations_is_no_iteration(make_engine: Make) -> None:
    engine = make_engine().run("d" * 20)
    engine.ranges.append(("event_loop", -1.0, engine.now + 2, 0))
    assert recognize_by_anchor(engine.read_ranges()).iterations.begin_ns.tolist() == engine.begins


def test_without_an_enclosing_range_a_call_at_the_start_marks_the_iteration(make_engine: Make) -> None:
    engine = make_engine(step="", prefill="", decode="").run("d" * 20)
    found = recognize_by_anchor(engine.read_ranges())
    assert found.evidence is Evidence.ANCHOR
    assert len(found.iterations) == 20
    # Each reaches to where the next begins: nothing tells where it ended.
    np.testing.assert_array_equal(found.iterations.end_ns[:-1], found.iterations.begin_ns[1:])


def test_missing_anchors_cost_those_iterations_only(make_engine: Make) -> None:
    engine = make_engine().run("d" * 60)
    places = [place for place, row in enumerate(engine.ranges) if row[0] == "run_batch"]
    lost = {places[number] for number in (7, 8, 30)}
    engine.ranges = [row for place, row in enumerate(engine.ranges) if place not in lost]
    found = recognize_by_anchor(engine.read_ranges())
    assert set(found.iterations.begin_ns.tolist()) <= set(engine.begins) | {
        row for row in found.iterations.begin_ns.tolist() if found.anchor != "run_batch"
    }
    assert len(found.iterations) in {57, 60}


def test_busy_second_thread_does_not_mislead(make_engine: Make) -> None:
    engine = make_engine().run(MIXED)
    rng = np.random.default_rng(3)
    beats = np.arange(0, engine.now, 0.7 * MS)
    engine.ranges += [("heartbeat", at + float(rng.normal(0, 1000)), 50_000.0, 1) for at in beats]
    found = recognize_by_anchor(engine.read_ranges())
    assert found.iterations.begin_ns.tolist() == engine.begins


def test_two_iterations_are_found_but_prove_less(make_engine: Make) -> None:
    two, many = (recognize_by_anchor(make_engine().run("d" * n).read_ranges()) for n in (2, 30))
    assert len(two.iterations) == 2
    assert two.iterations.confidence[0] < many.iterations.confidence[0]


def test_layers_of_one_iteration_are_not_iterations(make_engine: Make) -> None:
    engine = make_engine(step="", layers=24).run("d")
    assert not recognize_iterations(engine.read_ranges(), engine.read_kernels())


def test_name_of_a_framework_needs_no_repetition(make_engine: Make) -> None:
    engine = make_engine(step="execute_4096_context_2(sq10)_generation_3(sq3)").run("d")
    found = recognize_by_anchor(engine.read_ranges())
    assert (len(found.iterations), found.iterations.kind.tolist()) == (1, [StepKind.MIXED])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("execute_8_context_0(sq0)_generation_8(sq8)", StepKind.DECODE),
        ("execute_8_context_1(sq9)_generation_0(sq0)", StepKind.PREFILL),
        ("step[DECODE bs=32]", StepKind.DECODE),
        ("step[EXTEND bs=1]", StepKind.PREFILL),
        ("ProfilerStep#7", StepKind.UNKNOWN),
    ],
)
def test_kind_that_a_name_tells_is_taken(make_activity: MakeActivity, name: str, kind: StepKind) -> None:
    found = recognize_by_anchor(make_activity([(name, 0.0, 5.0 * MS, 0), ("work", 1.0, 2.0, 0)]))
    assert found.iterations.kind.tolist() == [kind]


def test_kernel_that_stands_once_marks_the_iteration(make_engine: Make) -> None:
    engine = make_engine(jitter=0.1).run("d" * 25)
    found = recognize_by_kernel_names(engine.read_kernels())
    assert len(found.iterations) == 25
    assert found.iterations.confidence.min() > 0.5


@pytest.mark.parametrize("seed", range(5))
def test_times_alone_tell_iterations_and_their_two_sorts(make_engine: Make, seed: int) -> None:
    engine = make_engine(seed=seed, jitter=0.05).run(MIXED)
    found = recognize_by_period(engine.read_kernels())
    assert found.evidence is Evidence.PERIOD
    first = [int(row[1]) for row in engine.kernels if row[0] == "embed"]
    assert found.iterations.begin_ns.tolist() == first
    assert found.iterations.kind.tolist() == read_kinds(MIXED)


def test_one_sort_of_iteration_is_given_no_kind(make_engine: Make) -> None:
    found = recognize_by_period(make_engine(jitter=0.05).run("d" * 25).read_kernels())
    assert set(found.iterations.kind.tolist()) == {StepKind.UNKNOWN}


def test_part_that_the_recording_cut_off_is_left_out(make_engine: Make) -> None:
    engine = make_engine().run("d" * 12)
    engine.kernels = engine.kernels[30:-30]
    found = recognize_by_period(engine.read_kernels())
    first = [int(row[1]) for row in engine.kernels if row[0] == "embed"]
    assert found.iterations.begin_ns.tolist() == first[:-1]


def test_repetition_without_an_inner_one_is_told_as_doubtful(make_activity: MakeActivity) -> None:
    rng = np.random.default_rng(5)
    lengths = rng.lognormal(11, 1, 17)
    rows: list[tuple[str, float, float, int]] = []
    now = 0.0
    for _ in range(24):
        for length in lengths.tolist():
            rows.append(("k", now, length, 0))
            now += length + 500
        now += 1.0 * MS
    found = recognize_by_period(make_activity(rows))
    assert len(found.iterations) == 24
    assert found.iterations.confidence.max() <= 0.4
    assert "layers" in found.why
    assert not recognize_iterations(None, make_activity(rows))


@pytest.mark.parametrize("seed", range(20))
def test_events_at_random_have_no_period(make_activity: MakeActivity, seed: int) -> None:
    rng = np.random.default_rng(seed)
    starts = np.cumsum(rng.exponential(1.0 * MS, 3000))
    lengths = rng.lognormal(12, 1, 3000)
    names = rng.choice(["a", "b", "c", "d", "e"], 3000)
    rows = list(zip(names.tolist(), starts.tolist(), lengths.tolist(), [0] * 3000, strict=True))
    found = recognize_iterations(make_activity(rows), make_activity(rows))
    assert found.evidence is Evidence.NONE
    assert not recognize_by_period(make_activity(rows))
    assert found.why


@pytest.mark.parametrize("count", [0, 1, 2, 13])
@pytest.mark.parametrize("length", [0.0, 10.0, 5e9])
def test_degenerate_streams_have_none_and_raise_nothing(
    make_activity: MakeActivity, count: int, length: float
) -> None:
    rows = [("same", 1000.0 * number, length, 0) for number in range(count)]
    activity = make_activity(rows)
    assert not recognize_by_period(activity)
    assert not recognize_iterations(activity, activity)
    assert not recognize_iterations(None, None)


def test_all_at_one_moment_is_no_period(make_activity: MakeActivity) -> None:
    assert not recognize_by_period(make_activity([("k", 5.0, 1.0, 0)] * 200))


def test_ranges_that_never_ended_are_left_out(make_activity: MakeActivity) -> None:
    assert len(make_activity([("a", 0.0, -1.0, 0), ("b", 0.0, 1.0, 0)])) == 1

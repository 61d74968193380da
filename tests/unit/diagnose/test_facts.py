# Facts by themselves: sums by time, rates between looks, requests in flight.
import math
from typing import Any

import numpy as np
import pytest

from otel_llmprism.diagnose.facts.bins import BIN_COUNT, BIN_NS, MAX_NAMES, BinRing
from otel_llmprism.diagnose.facts.host_rates import RateReader
from otel_llmprism.diagnose.facts.host_ring import LOOKS, HostRing
from otel_llmprism.diagnose.facts.reference import Reference, summarize
from otel_llmprism.diagnose.facts.requests import MAX_REQUESTS, RequestWatch
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.hosts import HostTables, SampleTable, SeriesTable

S = 1_000_000_000
BASE = 1_700_000_000 * S


def at(*seconds: float) -> Any:
    return np.array([BASE + int(second * S) for second in seconds], dtype=np.int64)


def test_sums_of_a_stretch_are_those_that_went_in() -> None:
    bins = BinRing()
    bins.add("busy", at(0, 0.1, 0.3, 5), np.array([1.0, 2.0, 4.0, 8.0]))
    assert bins.sum_between("busy", BASE, BASE + BIN_NS) == 3.0
    assert bins.sum_between("busy", BASE, BASE + 10 * S) == 15.0
    assert bins.sum_between("nothing", BASE, BASE + 10 * S) == 0.0


def test_ring_forgets_what_is_older_than_its_length() -> None:
    bins = BinRing()
    for second in range(0, 1000, 10):
        bins.add("n", at(second), np.ones(1))
    length_s = BIN_COUNT * BIN_NS // S
    assert bins.sum_between("n", 0, BASE + 2000 * S) == length_s // 10


def test_clock_that_is_set_back_beyond_the_ring_begins_anew() -> None:
    bins = BinRing()
    bins.add("n", at(1000), np.ones(1))
    bins.add("n", at(100), np.ones(1))
    assert bins.sum_between("n", 0, BASE + 2000 * S) == 1.0
    assert bins.refused == 1


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    bins = BinRing()
    bins.add("n", at(0, 0, 0), np.array([1.0, math.nan, math.inf]))
    assert bins.sum_between("n", BASE, BASE + S) == 1.0
    assert bins.refused == 2


def test_names_are_bounded() -> None:
    bins = BinRing()
    for number in range(MAX_NAMES + 5):
        bins.add(f"n{number}", at(0), np.ones(1))
    assert len(bins.list_names("n")) == MAX_NAMES
    assert bins.refused == 5


def test_reference_is_robust_and_leaves_incidents_out() -> None:
    bins = BinRing()
    for second in range(60):
        value = 100.0 if second == 7 or 20 <= second < 40 else 1.0
        bins.add_columns(at(second), {"a": np.array([value]), "n": np.ones(1)})
    unhealthy = [(BASE + 20 * S, BASE + 40 * S)]
    normal = Reference(BASE + 60 * S, unhealthy, {}).read_ratio(bins, "a", "n")
    assert (normal.centre, normal.spread) == (1.0, 0.0)
    assert normal.count == 40


def test_reference_outlives_the_healthy_time_it_was_taken_from() -> None:
    bins, kept = BinRing(), {}  # type: ignore[var-annotated]
    for second in range(30):
        bins.add_columns(at(second), {"a": np.array([2.0]), "n": np.ones(1)})
    Reference(BASE + 30 * S, [], kept).read_ratio(bins, "a", "n")
    later = Reference(BASE + 900 * S, [], kept).read_ratio(BinRing(), "a", "n")
    assert later.centre == 2.0


def test_summary_of_nothing_is_untold() -> None:
    assert math.isnan(summarize(np.array([math.nan])).centre)


def build_look(at_s: float, rows: list[tuple[int, int, str, float]]) -> HostTables:
    names = [name.encode() for _, _, name, _ in rows]
    return HostTables(
        SeriesTable(
            np.array([row[0] for row in rows], dtype=np.uint32),
            np.array([row[1] for row in rows], dtype=np.uint32),
            np.array([len(name) for name in names], dtype=np.uint16),
        ),
        SampleTable(
            np.arange(len(rows), dtype=np.uint32),
            np.full(len(rows), int(at_s * S), dtype=np.uint64),
            np.array([row[3] for row in rows]),
        ),
        np.frombuffer(b"".join(names), dtype=np.uint8),
    )


def test_rates_are_told_by_whom_and_what_others_used_is_the_rest() -> None:
    reader, none = RateReader(), (1 << 32) - 1
    anchor = Anchor(0, BASE)

    def build(at_s: float, used: float) -> HostTables:
        return build_look(at_s, [
            (0, none, "system.cpu.time_s/user", 4 * used), (0, none, "system.cpu.time_s/idle", 4 * used),
            (9, 1, "process.cpu_s/user", used), (9, 1, "process.thread.wait_s/9/main", used / 2),
            (9, 1, "process.thread.cpu_s/9/main", used), (9, 1, "process.thread.wait_s/10/side", used / 4),
        ])  # fmt: skip

    assert reader.read(build(10, 1.0), anchor) == []
    ((begin, end, values),) = reader.read(build(12, 2.0), anchor)
    assert (begin, end) == (BASE + 10 * S, BASE + 12 * S)
    assert values["own_cores"] == 0.5
    assert values["others_cores"] == 1.5
    assert values["idle_cores"] == 2.0
    assert values["wait"] == values["wait/rank1"] == 0.375
    assert values["worst_wait/rank1"] == 0.25
    assert values["beside_worst/rank1"] == 0.0


def test_sum_that_falls_is_a_new_beginning_and_no_rate() -> None:
    reader, none, anchor = RateReader(), (1 << 32) - 1, Anchor(0, BASE)
    name = "cgroup.cpu.throttled_s"
    reader.read(build_look(1, [(0, none, name, 5.0)]), anchor)
    ((_, _, values),) = reader.read(build_look(2, [(0, none, name, 1.0)]), anchor)
    assert values[name] == 0.0


def test_looks_far_apart_tell_of_no_second() -> None:
    reader, none, anchor = RateReader(), (1 << 32) - 1, Anchor(0, BASE)
    reader.read(build_look(1, [(0, none, "system.context_switches", 5.0)]), anchor)
    assert reader.read(build_look(100, [(0, none, "system.context_switches", 9.0)]), anchor) == []


def test_host_ring_keeps_the_newest_looks_in_order() -> None:
    ring = HostRing()
    for second in range(LOOKS + 20):
        ring.add(BASE + second * S, BASE + (second + 1) * S, {"x": float(second)})
    looks = ring.list_looks(0, BASE + 10_000 * S)
    assert ring.read("x", looks).tolist() == [float(second) for second in range(20, LOOKS + 20)]


@pytest.mark.parametrize("lost_ends", [0, 3])
def test_requests_in_flight_are_bounded_by_what_the_last_step_said(stage: Any, lost_ends: int) -> None:
    scene = stage.scene(seed=61)
    watch, bins = RequestWatch(), BinRing()
    made = [scene.make_step(0.5)]
    tables, _ = scene.build_batch(made, 0.0, 2.0)
    watch.take(tables, bins, scene.anchor)
    open_handles = len(set(tables.arrivals.handle.tolist()) - set(tables.ends.handle.tolist()))
    assert watch.count_in_flight(people=10_000, since_ns=stage.epoch_ns + 3 * S) == open_handles
    bound = max(0, open_handles - lost_ends)
    assert watch.count_in_flight(people=bound, since_ns=stage.epoch_ns + 3 * S) == bound


def test_requests_that_never_end_are_forgotten(stage: Any) -> None:
    watch = RequestWatch()
    for handle in range(MAX_REQUESTS + 7):
        watch._find(handle)
    assert len(watch._lives) == MAX_REQUESTS
    assert watch.forgotten == 7

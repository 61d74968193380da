# The reservoir keeps what a model needs: bounded, rare work kept, recent work kept, groups by time.
import numpy as np

from otel_llmprism.baseline.expected import Reservoir, ReservoirConfig
from otel_llmprism.model.work import WorkTable

SECOND_NS = 10**9


def build_work(tokens: np.ndarray, name: str = "decode_tokens") -> WorkTable:
    return WorkTable(np.full(len(tokens), 2, np.uint8), (name,), tokens.astype(float)[:, None])


def build_reservoir(steps: int = 200) -> Reservoir:
    return Reservoir(ReservoirConfig(steps=steps), np.random.default_rng(0))


def add(reservoir: Reservoir, tokens: np.ndarray, first_s: int) -> None:
    times = (first_s * SECOND_NS + np.arange(len(tokens)) * SECOND_NS // 10).astype(np.uint64)
    reservoir.add(build_work(tokens), np.full(len(tokens), 1_000_000, np.uint64), times)


def test_it_never_holds_more_than_its_bound() -> None:
    reservoir = build_reservoir(200)
    for second in range(50):
        add(reservoir, np.random.default_rng(second).integers(1, 500, 100), second * 10)
        assert len(reservoir) <= 250


def test_a_flood_in_one_call_is_bounded_too() -> None:
    reservoir = build_reservoir(200)
    add(reservoir, np.random.default_rng(0).integers(1, 500, 50_000), 0)
    assert len(reservoir) <= 250


def test_rare_work_is_not_forgotten_under_common_work() -> None:
    reservoir = build_reservoir(200)
    add(reservoir, np.full(5, 4000), 0)
    for second in range(50):
        add(reservoir, np.full(100, 10), 10 + second * 10)
    work, _, _ = reservoir.read()
    assert (work.read_feature("decode_tokens") == 4000).sum() == 5


def test_both_recent_and_old_steps_of_common_work_stay() -> None:
    reservoir = build_reservoir(200)
    for second in range(100):
        add(reservoir, np.full(100, 10), second * 10)
    times = reservoir.read_times() / SECOND_NS
    assert (times > 980).sum() >= 90
    assert (times < 900).sum() >= 20


def test_steps_of_one_stretch_of_time_share_a_group() -> None:
    reservoir = build_reservoir(2000)
    add(reservoir, np.full(1000, 10), 0)  # 100 seconds
    work, cycle_ns, groups = reservoir.read()
    assert len(work) == len(cycle_ns) == len(groups) == 1000
    assert len(np.unique(groups)) == 50
    assert (np.diff(groups) >= 0).all()


def test_a_feature_that_comes_later_is_missing_before() -> None:
    reservoir = build_reservoir()
    add(reservoir, np.full(3, 10), 0)
    later = build_work(np.full(2, 5), "spec_tokens")
    reservoir.add(later, np.ones(2, np.uint64), np.full(2, 99 * SECOND_NS, np.uint64))
    work, _, _ = reservoir.read()
    assert np.isnan(work.read_feature("spec_tokens")[:3]).all()
    assert np.isnan(work.read_feature("decode_tokens")[3:]).all()


def test_an_empty_reservoir_reads_as_no_rows() -> None:
    work, cycle_ns, groups = build_reservoir().read()
    assert len(work) == len(cycle_ns) == len(groups) == 0


def test_damaged_numbers_do_not_stop_it() -> None:
    reservoir = build_reservoir(10)
    add(reservoir, np.array([np.nan, np.inf, -np.inf, -5.0, 1e308] * 20), 0)
    assert len(reservoir) <= 12

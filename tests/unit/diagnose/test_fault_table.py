# Every row of the fault table: which cause and subject is named first, and how soon.
from typing import Any

import pytest

from otel_llmprism.model.findings import Finding

ONSET_S = 18.0
SEEDS = (11, 12, 17)
INTENSITIES = (1.3, 2.0, 3.0)
DELAYS_S = {1.3: 10.0, 2.0: 2.0, 3.0: 2.0}


def find_first(stage: Any, seed: int, name: str, size: float, **scene: Any) -> tuple[Finding, Any]:
    """Return the only finding of a scene with one fault."""
    rank = scene.pop("rank", 0)
    told = scene.pop("told", True)
    fault = stage.fault(name, ONSET_S + (seed % 7) / 7, 75.0, size, rank=rank, told=told)
    theatre = stage.theatre()
    theatre.play(stage.scene(seed=seed, faults=[fault], **scene), until_s=30.0)
    opened = theatre.list_opened()
    assert [(one.kind, one.subject.id) for one in opened][1:] == []
    assert opened, "nothing was found"
    delay_s = (opened[0].opened_ns - stage.epoch_ns) / 1e9 - fault.begin_s
    assert delay_s <= DELAYS_S[size]
    assert opened[0].opened_ns >= opened[0].onset_ns
    return opened[0], theatre


pytestmark = [pytest.mark.parametrize("seed", SEEDS), pytest.mark.parametrize("size", INTENSITIES)]


def test_burn_beside_the_engine_is_contention_on_the_host(stage: Any, seed: int, size: float) -> None:
    first, _ = find_first(stage, seed, "burn", size)
    assert (first.kind, first.subject.type, first.subject.id) == ("cpu_contention", "host", "host-a")


def test_quota_on_the_engine_is_throttling_of_the_engine(stage: Any, seed: int, size: float) -> None:
    first, _ = find_first(stage, seed, "throttle", size, ranks=seed % 2 + 1)
    assert (first.kind, first.subject.type, first.subject.id) == ("cpu_throttle", "engine", "engine-a")


def test_quota_on_one_rank_is_throttling_of_that_rank(stage: Any, seed: int, size: float) -> None:
    first, _ = find_first(stage, seed, "throttle_rank", size, ranks=2, rank=seed % 2)
    assert (first.kind, first.subject.type, first.subject.id) == ("cpu_throttle", "rank", str(seed % 2))


def test_quota_of_which_no_control_group_tells_is_throttling(stage: Any, seed: int, size: float) -> None:
    first, _ = find_first(stage, seed, "throttle_rank", size, ranks=2, rank=1, told=False)
    accepted = {"cpu_throttle"} if size > 1.5 else {"cpu_throttle", "cpu_contention"}
    assert first.kind in accepted
    assert (first.subject.type, first.subject.id) == ("rank", "1")


def test_threads_squeezed_onto_one_core_fight_each_other(stage: Any, seed: int, size: float) -> None:
    first, _ = find_first(stage, seed, "squeeze", size)
    assert (first.kind, first.subject.type) == ("cpu_contention", "engine")


def test_squeezed_rank_is_named(stage: Any, seed: int, size: float) -> None:
    first, _ = find_first(stage, seed, "squeeze_rank", size, ranks=2, rank=1)
    assert (first.kind, first.subject.type, first.subject.id) == ("cpu_contention", "rank", "1")


@pytest.mark.parametrize("name", ["scheduler", "gap"])
def test_delay_in_the_scheduler_is_the_schedulers(stage: Any, seed: int, size: float, name: str) -> None:
    first, _ = find_first(stage, seed, name, size)
    assert (first.kind, first.subject.type) == ("scheduler_delay", "engine")


def test_delay_in_an_operator_is_a_regression(stage: Any, seed: int, size: float) -> None:
    first, _ = find_first(stage, seed, "operator", size, ranks=seed % 2 + 1)
    assert (first.kind, first.subject.type) == ("step_regression", "engine")


def test_want_of_memory_is_memory_pressure(stage: Any, seed: int, size: float) -> None:
    first, _ = find_first(stage, seed, "memory", size)
    assert (first.kind, first.subject.type) == ("memory_pressure", "host")


@pytest.mark.parametrize("ranks", [2, 4])
def test_slow_rank_is_named_and_no_other(stage: Any, seed: int, size: float, ranks: int) -> None:
    first, theatre = find_first(stage, seed, "slow_rank", size, ranks=ranks, rank=seed % ranks)
    assert (first.kind, first.subject.type, first.subject.id) == ("slow_worker", "rank", str(seed % ranks))
    assert str(seed % ranks) not in map(str, first.affected.ranks)
    assert all(one.subject == first.subject for one in theatre.told)


@pytest.mark.parametrize("watch_every", [10, 1_000_000])
def test_slow_link_between_two_ranks_is_named(stage: Any, seed: int, size: float, watch_every: int) -> None:
    first, _ = find_first(stage, seed, "link", size, ranks=2, watch_every=watch_every)
    assert (first.kind, first.subject.type, first.subject.id) == ("slow_link", "link", "0->1")


def test_training_that_waits_for_data_is_a_data_stall(stage: Any, seed: int, size: float) -> None:
    first, _ = find_first(stage, seed, "data", size, is_training=True, ranks=2)
    assert (first.kind, first.subject.type) == ("data_stall", "engine")


def test_gpu_held_back_by_heat_is_named_by_its_id(stage: Any, seed: int, size: float) -> None:
    first, _ = find_first(stage, seed, "gpu_clock", size, gpu="GPU-7c")
    assert (first.kind, first.subject.type, first.subject.id) == ("gpu_throttle", "gpu", "GPU-7c")

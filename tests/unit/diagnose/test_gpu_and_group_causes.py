# Causes that the fault table has no machine for: GPUs and larger groups, by samples made by hand.
from typing import Any

import numpy as np
import pytest

from otel_llmprism.model.hosts import NO_RANK, HostTables, SampleTable, SeriesTable

ONSET_S = 18.0
GPU = "GPU-1"


def append_samples(tables: HostTables, extra: dict[str, tuple[int, float]]) -> HostTables:
    """Return the tables with further series: pid and value by name."""
    names = [name.encode() for name in extra]
    count = len(tables.series)
    return HostTables(
        SeriesTable(
            np.append(tables.series.pid, np.array([pid for pid, _ in extra.values()], dtype=np.uint32)),
            np.append(tables.series.rank, np.full(len(extra), NO_RANK, dtype=np.uint32)),
            np.append(tables.series.name_bytes, np.array([len(name) for name in names], dtype=np.uint16)),
        ),
        SampleTable(
            np.append(tables.samples.series_row, np.arange(count, count + len(extra), dtype=np.uint32)),
            np.append(
                tables.samples.time_ns, np.full(len(extra), tables.samples.time_ns[0], dtype=np.uint64)
            ),
            np.append(tables.samples.value, np.array([value for _, value in extra.values()])),
        ),
        np.append(tables.names, np.frombuffer(b"".join(names), dtype=np.uint8)),
    )


def play_gpu(stage: Any, seed: int, during: dict[str, tuple[int, float, float]]) -> list[tuple[str, ...]]:
    """Play slow steps beside a GPU of which each series goes from one value to another."""
    fault = stage.fault("operator", ONSET_S, 90.0, 2.0)
    scene = stage.scene(seed=seed, faults=[fault], gpu=GPU)
    real = scene.sample_host
    sums: dict[str, float] = {}

    def sample(at_s: float) -> HostTables:
        extra = {}
        for name, (pid, before, after) in during.items():
            value = before if at_s < ONSET_S else after
            if name.startswith(("hw.gpu.io", "llmprism.gpu.nvlink")):  # sums only rise
                value = sums[name] = sums.get(name, 0.0) + value
            extra[name] = (pid, value)
        return append_samples(real(at_s), extra)

    scene.sample_host = sample
    theatre = stage.theatre()
    theatre.play(scene, until_s=24.0)
    return [(one.kind, one.subject.type, one.subject.id) for one in theatre.list_opened()]


@pytest.mark.parametrize("seed", [51, 52])
@pytest.mark.parametrize(
    ("kind", "during"),
    [
        (
            "gpu_contention",
            {
                f"llmprism.gpu.process_memory/{GPU}": (4242, 0.0, 9e9),
                f"hw.gpu.utilization/{GPU}/general": (0, 0.5, 1.0),
            },
        ),
        ("gpu_memory_pressure", {f"hw.gpu.memory.utilization/{GPU}": (0, 0.7, 0.995)}),
        ("pcie_contention", {f"hw.gpu.io/{GPU}/receive": (0, 2e9, 1.2e10)}),
        ("nvlink_contention", {f"llmprism.gpu.nvlink.io/{GPU}/transmit": (0, 2e9, 1.2e10)}),
    ],
)
def test_what_strikes_a_gpu_is_named_with_the_gpu(
    stage: Any, seed: int, kind: str, during: dict[str, tuple[int, float, float]]
) -> None:
    assert play_gpu(stage, seed, during) == [(kind, "gpu", GPU)]


def test_power_cap_that_costs_no_clock_explains_nothing(stage: Any) -> None:
    during = {f"llmprism.gpu.throttled/{GPU}/power_cap": (0, 0.0, 1.0)}
    assert play_gpu(stage, 53, during) == [("step_regression", "engine", "engine-a")]


def test_full_memory_that_was_full_before_explains_nothing(stage: Any) -> None:
    during = {f"hw.gpu.memory.utilization/{GPU}": (0, 0.985, 0.985)}
    assert play_gpu(stage, 54, during) == [("step_regression", "engine", "engine-a")]


@pytest.mark.parametrize("ranks", [3, 4])
def test_slow_exchange_of_a_larger_group_is_the_groups(stage: Any, ranks: int) -> None:
    theatre = stage.theatre()
    scene = stage.scene(seed=55, ranks=ranks, faults=[stage.fault("link", ONSET_S, 90.0, 2.0)])
    theatre.play(scene, until_s=24.0)
    (first,) = theatre.list_opened()
    members = ",".join(map(str, range(ranks)))
    assert (first.kind, first.subject.type, first.subject.id) == ("communication_delay", "group", members)

import importlib
import sys
import threading
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_llmprism.exporters.otlp_metrics import encode_metrics
from otel_llmprism.receivers.host import to_host_tables
from otel_llmprism.receivers.host_gpu import GpuReading, GpuSampler, list_gpus, load_nvml
from otel_llmprism.semconv import gpu as names
from otel_llmprism.service.exporter_process import gpu_watch
from otel_llmprism.service.exporter_process.gpu_watch import (
    GpuWatch,
    start_gpu_watch,
    to_host_readings,
    to_metrics,
)
from otel_llmprism.testing.fake_nvml import ANSWERS, FakeGpu, FakeNvml

ONE = "GPU-1111"
PCIE_TX, PCIE_RX, LINK_TX, LINK_RX = 197, 198, 138, 139


def build_gpu() -> FakeGpu:
    return FakeGpu(
        ONE,
        throttle_bits=0x4 | 0x40,
        throttled_ns={0: 2_500_000_000},
        ecc={0: 3, 1: 1},
        pcie_replays=2,
        fields={PCIE_TX: 10, PCIE_RX: 20, LINK_TX: 1, LINK_RX: 2},
        process_bytes={77: 1 << 20, 78: None},
    )


def read(*gpus: FakeGpu) -> dict[tuple[str, str], float]:
    nvml = FakeNvml(*gpus)
    return {(one.name, one.detail): one.value for one in GpuSampler(nvml, list_gpus(nvml)).read()}


def test_everything_a_gpu_tells_is_in_the_units_of_the_conventions() -> None:
    values = read(build_gpu())
    assert values == {
        (names.GPU_UTILIZATION, "general"): 0.4,
        (names.GPU_MEMORY_USAGE, ""): 3 << 30,
        (names.GPU_MEMORY_LIMIT, ""): 4 << 30,
        (names.GPU_MEMORY_UTILIZATION, ""): 0.75,
        (names.HW_TEMPERATURE, ""): 61,
        (names.HW_POWER, ""): 350,
        (names.HW_ENERGY, ""): 7000,
        (names.GPU_CLOCK, "sm"): 1_980_000_000,
        (names.GPU_CLOCK, "memory"): 3_201_000_000,
        **{
            (names.GPU_THROTTLED, reason): reason in {"power_cap", "hardware_thermal"}
            for reason in (
                "power_cap",
                "hardware",
                "sync_boost",
                "thermal",
                "hardware_thermal",
                "power_brake",
            )
        },
        (names.GPU_THROTTLED_TIME, "power_cap"): 2.5,
        **dict.fromkeys(
            [
                (names.GPU_THROTTLED_TIME, reason)
                for reason in ("thermal", "sync_boost", "board_limit", "reliability")
            ],
            0,
        ),
        (names.HW_ERRORS, "corrected"): 3,
        (names.HW_ERRORS, "uncorrected"): 1,
        (names.HW_ERRORS, "pcie_replay"): 2,
        (names.GPU_IO, "transmit"): 10,
        (names.GPU_IO, "receive"): 20,
        (names.GPU_NVLINK_IO, "transmit"): 1024,
        (names.GPU_NVLINK_IO, "receive"): 2048,
        (names.GPU_PROCESS_MEMORY, ""): 1 << 20,
    }


def test_what_a_gpu_does_not_support_is_asked_once_and_left_out() -> None:
    gpu = FakeGpu(ONE, unsupported={"nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEccErrors"})
    nvml = FakeNvml(gpu)
    sampler = GpuSampler(nvml, list_gpus(nvml))
    for _ in range(3):
        assert names.HW_POWER not in {one.name for one in sampler.read()}
    assert nvml.calls.count("nvmlDeviceGetPowerUsage") == 1
    assert nvml.calls.count("nvmlDeviceGetUtilizationRates") == 3


def test_gpu_without_byte_counters_tells_its_rate_instead() -> None:
    nvml = FakeNvml(FakeGpu(ONE))
    sampler = GpuSampler(nvml, list_gpus(nvml))
    sampler.read()
    values = {(one.name, one.detail): one.value for one in sampler.read()}
    assert values[names.GPU_PCIE_THROUGHPUT, "receive"] == 101 * 1024
    assert (names.GPU_IO, "receive") not in values


def test_lost_gpu_says_nothing_and_is_asked_again() -> None:
    lost, well = build_gpu(), FakeGpu("GPU-2222")
    nvml = FakeNvml(lost, well)
    sampler = GpuSampler(nvml, list_gpus(nvml))
    lost.is_lost = True
    assert {one.gpu for one in sampler.read()} == {"GPU-2222"}
    lost.is_lost = False
    assert {one.gpu for one in sampler.read()} == {ONE, "GPU-2222"}


@pytest.mark.parametrize(
    ("visible", "seen"),
    [(None, [0, 1, 2]), ("2,0", [0, 2]), ("GPU-b", [1]), ("", []), ("-1", []), (" 1 ", [1])],
)
def test_only_gpus_that_the_engine_may_use_are_watched(visible: str | None, seen: list[int]) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"), FakeGpu("GPU-c"))
    assert [gpu.number for gpu in list_gpus(nvml, visible)] == seen


def test_samples_of_a_process_carry_its_pid_and_rank() -> None:
    nvml = FakeNvml(build_gpu())
    readings = to_host_readings(GpuSampler(nvml, list_gpus(nvml)).read())
    tables = to_host_tables(readings, 5, {77: 3})
    series = dict(zip(tables.list_names(), tables.series.rank.tolist(), strict=True))
    assert series[f"llmprism.gpu.process_memory/{ONE}"] == 3
    assert f"hw.gpu.utilization/{ONE}/general" in series
    assert f"hw.power/{ONE}" in series


def test_metrics_are_told_by_gpu_and_never_by_process() -> None:
    nvml = FakeNvml(build_gpu())
    payload = encode_metrics({}, to_metrics(GpuSampler(nvml, list_gpus(nvml)).read()), 1, 2)
    (resource,) = ExportMetricsServiceRequest.FromString(payload).resource_metrics
    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    assert names.GPU_PROCESS_MEMORY not in metrics
    assert metrics[names.GPU_UTILIZATION].unit == "1"
    (point,) = metrics[names.GPU_UTILIZATION].gauge.data_points
    attributes = {item.key: item.value.string_value for item in point.attributes}
    assert attributes == {"hw.id": ONE, "hw.model": "NVIDIA H200", "hw.gpu.task": "general"}
    assert metrics[names.HW_ERRORS].sum.is_monotonic
    assert not metrics[names.GPU_MEMORY_USAGE].sum.is_monotonic
    assert len(metrics[names.GPU_IO].sum.data_points) == 2
    errors = metrics[names.HW_ERRORS].sum.data_points
    told = [{item.key: item.value.string_value for item in point.attributes} for point in errors]
    assert {one["error.type"] for one in told} == {"corrected", "uncorrected", "pcie_replay"}
    assert {one["hw.type"] for one in told} == {"gpu"}


def test_machine_without_nvml_has_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert load_nvml() is None
    assert start_gpu_watch(None, 1.0) is None


@pytest.mark.parametrize("gpus", [[], [FakeGpu(ONE, is_lost=True)]])
def test_driver_without_a_usable_gpu_has_no_watch(
    monkeypatch: pytest.MonkeyPatch, gpus: list[FakeGpu]
) -> None:
    monkeypatch.setattr(gpu_watch, "load_nvml", lambda: FakeNvml(*gpus))
    assert start_gpu_watch(None, 1.0) is None


def test_gpu_that_hangs_holds_up_nobody() -> None:
    asked, forever = threading.Event(), threading.Event()

    def hang() -> list[GpuReading]:
        asked.set()
        forever.wait()
        raise RuntimeError

    watch = GpuWatch(hang, every_s=0.001)
    try:
        assert asked.wait(10)
        assert watch.take() == []
        watch.close()
    finally:
        forever.set()
        watch._thread.join()
    assert watch.read_metrics() == []


def test_readings_are_given_to_the_ledger_once() -> None:
    watch = GpuWatch(lambda: [GpuReading(ONE, "", names.HW_POWER, "", 1.0)], every_s=3600)
    try:
        while not (taken := watch.take()):
            assert watch._thread.is_alive()
        assert taken[0].value == 1.0
        assert watch.take() == []
        assert [one.name for one in watch.read_metrics()] == [names.HW_POWER]
    finally:
        watch.close()
    assert not watch._thread.is_alive()


def test_the_fake_has_the_numbers_of_the_real_package() -> None:
    try:
        real: Any = importlib.import_module("pynvml")
    except ModuleNotFoundError:
        pytest.skip("nvidia-ml-py is not installed (the extra gpu)")
    numbers = {
        name: value for name, value in vars(FakeNvml).items() if name.startswith(("NVML_", "nvmlClocks"))
    }
    assert numbers == {name: getattr(real, name) for name in numbers}
    functions = [*ANSWERS, *(name for name in vars(FakeNvml) if name.startswith("nvmlDevice"))]
    assert all(callable(getattr(real, name)) for name in functions)

# The real NVML on a real GPU: what the fake promises is what the driver tells.
import os

import pytest

from otel_llmprism.receivers.host_gpu import GpuSampler, list_gpus, load_nvml
from otel_llmprism.semconv import gpu as names

pytestmark = pytest.mark.gpu

NVML = load_nvml()
if NVML is None:
    pytest.skip("no NVML: a GPU with its driver and nvidia-ml-py are needed", allow_module_level=True)


def test_real_gpu_tells_load_memory_clocks_power_and_throttling() -> None:
    gpus = list_gpus(NVML)
    assert gpus
    assert all(gpu.uuid.startswith("GPU-") for gpu in gpus)
    readings = GpuSampler(NVML, gpus).read()
    told = {(one.name, one.detail) for one in readings}
    wanted = {
        (names.GPU_UTILIZATION, "general"),
        (names.GPU_MEMORY_USAGE, ""),
        (names.GPU_MEMORY_LIMIT, ""),
        (names.HW_TEMPERATURE, ""),
        (names.HW_POWER, ""),
        (names.GPU_CLOCK, "sm"),
        (names.GPU_CLOCK, "memory"),
        (names.GPU_THROTTLED, "power_cap"),
    }
    assert wanted <= told
    values = {(one.gpu, one.name, one.detail): one.value for one in readings}
    for gpu in gpus:
        assert 0 <= values[gpu.uuid, names.GPU_UTILIZATION, "general"] <= 1
        used, limit = (
            values[gpu.uuid, name, ""] for name in (names.GPU_MEMORY_USAGE, names.GPU_MEMORY_LIMIT)
        )
        assert 0 <= used <= limit
        assert 1e8 < values[gpu.uuid, names.GPU_CLOCK, "sm"] < 1e10


def test_second_reading_asks_nothing_in_vain() -> None:
    sampler = GpuSampler(NVML, list_gpus(NVML))
    sampler.read()
    second = sampler.read()
    assert second
    third = {(one.gpu, one.name, one.detail) for one in sampler.read() if not one.pid}
    assert third == {(one.gpu, one.name, one.detail) for one in second if not one.pid}


def test_cuda_visible_devices_chooses_among_real_gpus() -> None:
    gpus = list_gpus(NVML)
    assert [gpu.uuid for gpu in list_gpus(NVML, "0")] == [gpus[0].uuid]
    assert [gpu.uuid for gpu in list_gpus(NVML, gpus[0].uuid)] == [gpus[0].uuid]
    assert list_gpus(NVML, "") == []


def test_memory_that_this_process_takes_is_seen() -> None:
    torch = pytest.importorskip("torch", reason="torch is needed to take memory on the GPU")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    sampler = GpuSampler(NVML, list_gpus(NVML))
    held = torch.ones(64 << 20, dtype=torch.float32, device="cuda")
    readings = [one for one in sampler.read() if one.name == names.GPU_PROCESS_MEMORY]
    own = [one for one in readings if one.pid == os.getpid()]
    if not own:
        pytest.skip("pids of another namespace are told here")
    assert own[0].value >= held.numel() * 4

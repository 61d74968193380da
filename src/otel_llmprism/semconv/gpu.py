# Metrics of GPUs and other hardware and their attributes, OpenTelemetry's where it has one. Constants only.
GPU_UTILIZATION = "hw.gpu.utilization"
GPU_MEMORY_UTILIZATION = "hw.gpu.memory.utilization"
GPU_MEMORY_USAGE = "hw.gpu.memory.usage"
GPU_MEMORY_LIMIT = "hw.gpu.memory.limit"
GPU_IO = "hw.gpu.io"
HW_ERRORS = "hw.errors"
HW_POWER = "hw.power"
HW_ENERGY = "hw.energy"
HW_TEMPERATURE = "hw.temperature"
GPU_CLOCK = "llmprism.gpu.clock"
GPU_THROTTLED = "llmprism.gpu.throttled"
GPU_THROTTLED_TIME = "llmprism.gpu.throttled_time"
GPU_NVLINK_IO = "llmprism.gpu.nvlink.io"
GPU_PCIE_THROUGHPUT = "llmprism.gpu.pcie.throughput"
GPU_PROCESS_MEMORY = "llmprism.gpu.process_memory"  # by process: in the ledger only

HW_ID = "hw.id"
HW_TYPE = "hw.type"
HW_MODEL = "hw.model"
HW_GPU_TASK = "hw.gpu.task"
IO_DIRECTION = "network.io.direction"
ERROR_TYPE = "error.type"

UNITS = {
    GPU_UTILIZATION: "1",
    GPU_MEMORY_UTILIZATION: "1",
    GPU_MEMORY_USAGE: "By",
    GPU_MEMORY_LIMIT: "By",
    GPU_IO: "By",
    HW_ERRORS: "{error}",
    HW_POWER: "W",
    HW_ENERGY: "J",
    HW_TEMPERATURE: "Cel",
    GPU_CLOCK: "Hz",
    GPU_THROTTLED: "1",
    GPU_THROTTLED_TIME: "s",
    GPU_NVLINK_IO: "By",
    GPU_PCIE_THROUGHPUT: "By/s",
    GPU_PROCESS_MEMORY: "By",
}

// What each kind of finding means, what was measured and what to do, in short; docs/findings.md says it at length.
// A kind without anything measured is one of the contract that nothing here opens yet.
const KIND = {
  slow_worker: {
    title: "Slow worker", means: "One rank arrives last in collectives and waits least; the others wait for it.",
    measured: "each rank's own time and wait against expected, lateness in sampled collectives",
    mend: "Look at that rank's node and GPU; a deep-dive shows its operators.",
  },
  slow_stage: {
    title: "Slow pipeline stage", means: "One stage of the pipeline takes longer than the others, so they run empty.",
    mend: "Balance the layers over the stages, or look at the hosts of that stage.",
  },
  input_imbalance: {
    title: "Uneven input", means: "Ranks get different amounts of work in the same step.",
    mend: "Look at how sequences are packed and batches are spread.",
  },
  slow_group: {
    title: "Slow group", means: "A whole group of ranks is slower than groups that do the same.",
    mend: "Look at what the group shares: hosts, switch, storage.",
  },
  slow_link: {
    title: "Slow link", means: "The exchange between two ranks takes longer though both arrive in time.",
    measured: "time in a collective after the last rank arrived; without collectives: all wait, none is busier",
    mend: "Look at the link between the two: errors, speed, what else it carries.",
  },
  slow_switch: {
    title: "Slow switch", means: "Several links that share a switch became slow together.",
    mend: "Look at the switch's ports, drops and load.",
  },
  gpu_throttle: {
    title: "GPU throttled", means: "A GPU lowers its clocks.",
    measured: "throttle reasons and their time, the SM clock",
    mend: "Look at the cooling and the power limit: nvidia-smi -q -d PERFORMANCE.",
  },
  gpu_contention: {
    title: "GPU shared", means: "Another process works on the GPU.",
    measured: "memory of processes that are not the engine's, utilisation",
    mend: "Move that process, or this engine.",
  },
  gpu_memory_pressure: {
    title: "GPU memory full", means: "The memory of a GPU is full that was not before.",
    measured: "the share of its memory in use",
    mend: "Shrink the cache or the batch; see who else allocates.",
  },
  cpu_contention: {
    title: "CPU contention", means: "Threads of the engine could run and had no processor.",
    measured: "seconds in the run queue per second, cores that others used",
    mend: "On a host: move or limit what else runs there. On an engine or rank: its threads share too few cores; look at affinity and cpusets.",
  },
  cpu_throttle: {
    title: "CPU quota used up", means: "A CPU quota stops the engine for a part of every period.",
    measured: "throttled time and periods of the control group, its limit",
    mend: "Raise the limit, or start fewer threads than it has cores.",
  },
  memory_pressure: {
    title: "Memory pressure", means: "The kernel looked for memory, or read pages back.",
    measured: "time stalled for memory, major page faults, events of the memory group",
    mend: "On an engine: raise its group's limit. On a host: see what else grew.",
  },
  pcie_contention: {
    title: "PCIe contention", means: "The PCIe bus carries more than the work explains.",
    measured: "bytes per second against tokens per second",
    mend: "See what copies: offloading, other devices on the switch.",
  },
  nvlink_contention: {
    title: "NVLink contention", means: "NVLink carries more than the work explains.",
    measured: "bytes per second against tokens per second",
    mend: "See what else uses these links.",
  },
  communication_delay: {
    title: "Slow communication", means: "The exchange in a group of ranks takes longer though all arrive in time, and no single link can be told.",
    measured: "time in a collective after the last rank arrived",
    mend: "Look at the network of that group.",
  },
  scheduler_delay: {
    title: "Slow scheduler", means: "Scheduling takes longer, or the gap between a result and the next schedule does.",
    measured: "scheduling time and gaps, per step",
    mend: "Profile the scheduler's process: long queues, structured output, garbage collection, logging.",
  },
  frontend_delay: {
    title: "Slow front end", means: "Requests are held before the engine hears of them, or after its last token.",
    measured: "time of requests in the front end on the way in and on the way out",
    mend: "Profile the front end: tokenization, slow readers of streams, too few processes.",
  },
  overload: {
    title: "Overload", means: "More is asked than steps of the expected speed can serve.",
    measured: "waiting requests, with steps as expected and room in the cache",
    mend: "Add replicas, or limit what comes in.",
  },
  kv_pressure: {
    title: "KV cache full", means: "Requests wait for room in the KV cache, or lose it and are computed again.",
    measured: "waiting requests, preemptions per second, the share of the cache in use",
    mend: "Give the cache more memory, shorten contexts, admit fewer requests at once.",
  },
  kv_transfer_delay: {
    title: "Slow KV transfer", means: "Moving KV blocks between engines, or to host memory, takes longer than it did.",
    mend: "Look at the path between prefill and decode engines, or at the offload target.",
  },
  recompilation: {
    title: "Recompilation", means: "Steps compile or capture graphs while they serve.",
    mend: "Warm up the shapes that occur; look for shapes that change with every step.",
  },
  operator_regression: {
    title: "Slower operator", means: "One operator takes longer than it did for the same work.",
    mend: "Compare versions and settings from before the onset.",
  },
  kernel_regression: {
    title: "Slower kernel", means: "One GPU kernel takes longer than it did for the same work.",
    mend: "Compare driver, library versions and clocks from before the onset.",
  },
  data_stall: {
    title: "Waiting for data", means: "Training waits for its data.",
    measured: "time in the data phase, per step",
    mend: "More loader workers, faster storage.",
  },
  step_regression: {
    title: "Slower steps", means: "Steps are slow, and the cause is not determined.",
    measured: "busy time against expected, and which part of the step grew",
    mend: "Look at the steps that were kept; a deep-dive shows their operators.",
  },
  hang: {
    title: "Hang", means: "Work is in flight, and there is no output.",
    measured: "seconds without output, requests in flight",
    mend: "See where its processes stand (py-spy dump); a rank may be gone.",
  },
};

export const listKinds = () => Object.keys(KIND);

// Kinds may be added: an unknown one is shown by its name.
export function describeKind(kind) {
  return { title: kind.replaceAll("_", " "), means: "", measured: "", mend: "", ...KIND[kind] };
}

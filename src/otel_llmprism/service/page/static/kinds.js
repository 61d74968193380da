// What each kind of finding means and what to do, as the page says it; docs/findings.md says it at length.
const KIND = {
  slow_worker: ["Slow worker", "One rank takes longer than its peers for the same work; the others wait for it.", "Look at that rank's GPU clocks, CPU and host; move it to another device and see whether the slowness follows."],
  slow_stage: ["Slow pipeline stage", "One stage of the pipeline takes longer than the others, so they run empty.", "Balance the layers over the stages, or look at the hosts of that stage."],
  input_imbalance: ["Uneven input", "Ranks get different amounts of work in the same step.", "Look at how sequences are packed or batches are spread."],
  slow_group: ["Slow group", "A whole group of ranks is slower than groups that do the same.", "Look at what the group shares: hosts, switch, storage."],
  slow_link: ["Slow link", "Data between two places moves slower than it did, or than between their peers.", "Look at errors and shaping on that link; route around it."],
  slow_switch: ["Slow switch", "Several links that share a switch became slow together.", "Look at the switch's ports, drops and load."],
  gpu_throttle: ["GPU throttled", "The GPU lowered its clocks: power, heat, or the hardware's protection.", "Look at the throttle reasons, the power limit and the cooling."],
  gpu_contention: ["GPU shared", "Another process computes on the same GPU.", "Move the other process away, or partition the GPU."],
  gpu_memory_pressure: ["GPU memory full", "The GPU has no memory left; memory is freed and taken again, or moved.", "Lower the memory share of the KV cache or the batch."],
  cpu_contention: ["CPU contention", "The engine's threads are ready to run, but other work has the cores.", "Move the other work away, or give the engine cores of its own."],
  cpu_throttle: ["CPU quota reached", "The control group's CPU quota stops the engine for part of every period.", "Raise the quota (the CPU limit of the pod), or use fewer threads."],
  memory_pressure: ["Memory pressure", "The host or the control group is short of memory: pages are reclaimed or read again.", "Give it more memory, or move what takes it."],
  pcie_contention: ["PCIe contention", "Transfers between host and GPU are slower than they were.", "See what else moves data over the same root port."],
  nvlink_contention: ["NVLink contention", "Transfers between GPUs of a host are slower than they were.", "See what else uses these links; look at their error counters."],
  communication_delay: ["Slow communication", "Collectives take longer, and no single rank or link stands out.", "Look at the network's load and at the collective library's settings."],
  scheduler_delay: ["Slow scheduler", "Time passes between steps while requests wait: the engine's scheduler takes it.", "Look at the scheduler's CPU time, long prompts, and features that work on the scheduler's thread."],
  frontend_delay: ["Slow front end", "Requests take longer than their queue time and their steps explain: the time goes before or after the engine.", "Look at the API server's CPU: tokenisation, detokenisation, streaming, too many connections."],
  overload: ["Overload", "More requests arrive than the engine can serve; the queue grows though steps are as fast as expected.", "Add replicas, limit what comes in, or raise the batch size if memory allows."],
  kv_pressure: ["KV cache full", "Requests wait or are preempted since the KV cache has no room.", "Give the cache more memory, lower the longest context, or admit fewer requests at a time."],
  kv_transfer_delay: ["Slow KV transfer", "Moving KV blocks between engines or to host memory takes longer than it did.", "Look at the path between prefill and decode engines, or at the offload target."],
  recompilation: ["Recompilation", "Steps compile or capture graphs while they serve.", "Warm up the shapes that occur; look for shapes that change with every step."],
  operator_regression: ["Slower operator", "One operator takes longer than it did for the same work.", "Compare versions and settings from before the onset."],
  kernel_regression: ["Slower kernel", "One GPU kernel takes longer than it did for the same work.", "Compare driver, library versions and clocks from before the onset."],
  data_stall: ["Waiting for data", "Training steps wait for their input.", "Look at the data loader's workers, the storage and preprocessing."],
  step_regression: ["Slower steps", "Steps take longer than their work explains, and nothing measured says why.", "Look at what changed at the onset; a deep-dive of a few steps shows more."],
  hang: ["Hang", "Work is in flight, and nothing came out for far longer than expected.", "Look at the stacks of the engine's processes; a collective that one rank never reached is a common cause."],
};

export const listKinds = () => Object.keys(KIND);

// Kinds may be added: an unknown one is shown by its name.
export function describeKind(kind) {
  const [title, means, mend] = KIND[kind] ?? [kind.replaceAll("_", " "), "", ""];
  return { title, means, mend };
}

# One rank of vLLM's own tensor-parallel group on CPU, with its shared-memory collectives: one sampled step in
# which rank 1 comes late; prints what was recorded as JSON. Arguments: rank, port, how late in seconds.
import json
import os
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np

from otel_llmprism.instrumentation.frameworks import collectives
from otel_llmprism.instrumentation.process_run import list_absent_hooks
from otel_llmprism.instrumentation.rank_records import RankPlace, RankRecorder
from otel_llmprism.instrumentation.rank_watch import RankWatch
from otel_llmprism.native.ring_records import Kind
from otel_llmprism.receivers.ring_slots import DTYPES


class ListRing:
    def __init__(self) -> None:
        self.records: list[bytes] = []

    def put(self, record: bytes, /) -> bool:
        self.records.append(record)
        return True

    def add_hook_time(self, _duration_ns: int, /) -> None:
        pass


def run_step(group: Any, tensor: Any, rank: int, late_s: float) -> None:
    """Do one of each that a model does; rank 1 is late for the second."""
    group.all_reduce(tensor)
    if rank == 1:
        time.sleep(late_s)
    group.all_reduce(tensor)
    group.all_gather(tensor)
    group.gather(tensor)
    group.barrier()


def main() -> None:
    """Join the group, run the step, print."""
    rank, port, late_s = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    os.environ.update(VLLM_DIST_IDENT=f"test-{port}", LOCAL_RANK=str(rank), VLLM_LOGGING_LEVEL="ERROR")
    collectives.install()
    torch, config = import_module("torch"), import_module("vllm.config")
    import_module("vllm.platforms").current_platform.import_kernels()
    state = import_module("vllm.distributed.parallel_state")
    ring = ListRing()
    with config.set_current_vllm_config(config.VllmConfig()):
        state.init_distributed_environment(2, rank, f"tcp://127.0.0.1:{port}", rank, "gloo")
        state.initialize_model_parallel(2)
        group, tensor = state.get_tp_group(), torch.ones(64, 64)
        watch = RankWatch(RankRecorder(ring, RankPlace(rank)), every=1)
        group.all_reduce(tensor)
        watch.begin(0)
        run_step(group, tensor, rank, late_s)
        watch.end(0, 0, 1)
        compiled = torch.compile(lambda value: group.all_reduce(value) + 1, backend="eager", fullgraph=True)
        compiled(tensor)
        means = type(group.device_communicator.dist_module).__name__
        state.destroy_model_parallel()
        state.destroy_distributed_environment()
    rows = [np.frombuffer(record, DTYPES[Kind(record[0])])[0] for record in ring.records]
    told = [{name: int(row[name]) for name in row.dtype.names if name != "unused"} for row in rows]
    sys.stdout.write("\n" + json.dumps({"rows": told, "means": means, "absent": list_absent_hooks()}))
    sys.stdout.flush()
    os._exit(0)  # as in gloo_rank.py


if __name__ == "__main__":
    main()

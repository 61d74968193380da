# One rank of a small group over gloo, with the engines' Python: a few steps of collectives, in one of which a
# rank comes late; prints what was recorded as JSON. Arguments: rank, world size, rendezvous file, the late
# rank, how late in seconds, and whether the hooks come before torch or after it.
import json
import os
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np

from otel_llmprism.instrumentation.frameworks import collectives
from otel_llmprism.instrumentation.rank_records import RankPlace, RankRecorder
from otel_llmprism.instrumentation.rank_watch import RankWatch
from otel_llmprism.native.ring_records import Kind
from otel_llmprism.receivers.ring_slots import DTYPES

STEPS = 3
LATE_STEP = 1


class ListRing:
    def __init__(self) -> None:
        self.records: list[bytes] = []

    def put(self, record: bytes, /) -> bool:
        self.records.append(record)
        return True

    def add_hook_time(self, _duration_ns: int, /) -> None:
        pass

    def list_rows(self, kind: Kind) -> list[dict[str, Any]]:
        found = [record for record in self.records if int.from_bytes(record[:2], "little") == kind]
        rows = [np.frombuffer(record, DTYPES[kind])[0] for record in found]
        return [{name: int(row[name]) for name in ("step", *FIELDS[kind])} for row in rows]


FIELDS = {
    Kind.COLLECTIVE: ("group", "seq", "op", "bytes", "start_ns", "end_ns", "device_ns"),
    Kind.STEP_RANK: ("rank", "wait_ns", "device_ns"),
}


def run_step(distributed: Any, tensor: Any, *, is_late: bool, late_s: float) -> None:
    """Do one of each: all ranks make the same calls, whoever is late."""
    distributed.broadcast(tensor, src=0)
    if is_late:
        time.sleep(late_s)
    distributed.all_reduce(tensor)
    work = distributed.all_reduce(tensor, async_op=True)
    work.wait()
    rank, size = distributed.get_rank(), distributed.get_world_size()
    gathered = tensor.new_empty(tensor.numel() * size)
    distributed.all_gather_into_tensor(gathered, tensor)
    if rank == 0:
        distributed.send(tensor, 1)
    elif rank == 1:
        distributed.recv(tensor, 0)
    distributed.barrier()


def count_compilations(torch: Any, watch: RankWatch, tensor: Any) -> int:
    """Compile a function that calls a collective, in and out of a sampled step; return how often it was."""
    counters = import_module("torch._dynamo.utils").counters

    def reduce(value: Any) -> Any:
        torch.distributed.all_reduce(value)
        return value + 1

    compiled = torch.compile(reduce, backend="eager", fullgraph=True)
    for step in (-1, STEPS, -1):
        watch.begin(step)
        compiled(tensor.clone())
        watch.end(step, 0, 1)
    return int(counters["stats"]["unique_graphs"])


def main() -> None:
    """Run the steps and print what was recorded."""
    rank, size, late_rank = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4])
    if sys.argv[6] == "before":
        collectives.install()
    torch: Any = import_module("torch")
    distributed: Any = import_module("torch.distributed")
    if sys.argv[6] == "after":
        collectives.install()
    distributed.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=rank, world_size=size)
    ring = ListRing()
    watch = RankWatch(RankRecorder(ring, RankPlace(rank)), every=1)
    tensor = torch.ones(1000)
    for step in range(STEPS):
        is_late = step == LATE_STEP and rank == late_rank
        watch.begin(step)
        run_step(distributed, tensor, is_late=is_late, late_s=float(sys.argv[5]))
        watch.end(step, 0, 1)
    rows = {kind.name: ring.list_rows(kind) for kind in FIELDS}
    graphs = count_compilations(torch, watch, tensor)
    collectives.remove()
    left = [
        name
        for owner in (distributed, distributed.distributed_c10d, distributed.Work)
        for name, value in vars(owner).items()
        if hasattr(value, "_llmprism_original")
    ]
    work = distributed.all_reduce(tensor, async_op=True)
    work.wait()
    distributed.destroy_process_group()
    sys.stdout.write(json.dumps({**rows, "graphs": graphs, "left": left}))
    sys.stdout.flush()
    # torch's gloo threads abort one exit in ten or so, with our hooks and without: not what is tested here.
    os._exit(0)


if __name__ == "__main__":
    main()

# One rank: its shard of the model, its place in the group, its recorder. Rank 0 lives in the engine's
# process; every other rank is a process that runs `run_worker` until the engine closes its pipe.
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from otel_llmprism.instrumentation.process_run import end_run, join_run
from otel_llmprism.instrumentation.rank_records import RankPlace, RankRecorder
from otel_llmprism.instrumentation.rank_watch import read_every
from otel_llmprism.native.ring_codes import CollectiveOp
from otel_llmprism.testing.mini_engine.collective import Group
from otel_llmprism.testing.mini_engine.fault_injector import FaultInjector, FaultPlan
from otel_llmprism.testing.mini_engine.model import Floats, ModelShard
from otel_llmprism.testing.mini_engine.rank_network import Meeting, join_rank_zero
from otel_llmprism.testing.mini_engine.records import ProcessRecords
from otel_llmprism.testing.mini_engine.settings import EngineConfig
from otel_llmprism.testing.mini_engine.work import StepWork, decode_work


class Worker:
    """Computes a step together with the other ranks of the group."""

    def __init__(
        self,
        shard: ModelShard,
        group: Group,
        find_recorder: Callable[[], RankRecorder],
        injector: FaultInjector,
    ) -> None:
        self._shard = shard
        self._group = group
        self._find_recorder = find_recorder
        self._injector = injector
        self._every = read_every(os.environ)

    def run_step(self, work: StepWork) -> Floats:
        """Return the logits of each sequence's last token."""
        start_ns = time.monotonic_ns()
        self._group.watches = bool(self._every) and work.step_id % self._every == 0
        logits = self._shard.compute_logits(work, self._reduce)
        waited_ns = self._group.take_waited_ns()
        recorder = self._find_recorder()
        for seq, seen in enumerate(self._group.take_seen()):
            recorder.record_collective(work.step_id, self._group.number, seq, CollectiveOp.ALL_REDUCE, *seen)
        recorder.record_rank(work.step_id, start_ns, time.monotonic_ns(), wait_ns=waited_ns)
        return logits

    def _reduce(self, part: Floats) -> Floats:
        self._injector.delay_operator()
        summed = self._group.all_reduce(part)
        self._injector.begin_operator()  # what the others took to come is not this rank's computing
        return summed


def run_worker(
    rank: int, config: EngineConfig, commands: Connection, to_group: Connection | Meeting, faults: FaultPlan
) -> None:
    """Serve steps until the engine closes `commands` or dies."""
    join_run(f"rank{rank}")
    to_root = join_rank_zero(rank, to_group) if isinstance(to_group, Meeting) else to_group
    injector = FaultInjector(faults, rank)
    worker = Worker(
        ModelShard(config, rank),
        Group(rank, [to_root], config.ranks),
        ProcessRecords(RankPlace(rank=rank, tp=rank)).find_rank_recorder,
        injector,
    )
    try:
        while raw := commands.recv_bytes():
            work = decode_work(raw)
            injector.begin_step(time.monotonic_ns())
            worker.run_step(work)
            injector.end_step(work.step_id, time.monotonic_ns())
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        pass  # the engine is gone or the user stopped us
    finally:
        injector.close()
        end_run()

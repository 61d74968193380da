# One rank: its shard of the model, its place in the group, its recorder. Rank 0 lives in the engine's
# process; every other rank is a process that runs `run_worker` until the engine closes its pipe.
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from otel_llmprism.instrumentation.process_run import end_run, join_run
from otel_llmprism.instrumentation.rank_records import RankPlace, RankRecorder
from otel_llmprism.testing.mini_engine.collective import Group
from otel_llmprism.testing.mini_engine.model import Floats, ModelShard
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
        before_step: Callable[[int], None],
    ) -> None:
        self._shard = shard
        self._group = group
        self._find_recorder = find_recorder
        self._before_step = before_step

    def run_step(self, work: StepWork) -> Floats:
        """Return the logits of each sequence's last token."""
        start_ns = time.monotonic_ns()
        self._before_step(work.step_id)
        logits = self._shard.compute_logits(work, self._group.all_reduce)
        waited_ns = self._group.take_waited_ns()
        recorder = self._find_recorder()
        recorder.record_rank(work.step_id, start_ns, time.monotonic_ns(), wait_ns=waited_ns)
        return logits


def run_worker(rank: int, config: EngineConfig, commands: Connection, to_root: Connection) -> None:
    """Serve steps until the engine closes `commands` or dies."""
    join_run(f"rank{rank}")
    worker = Worker(
        ModelShard(config, rank),
        Group(rank, [to_root]),
        ProcessRecords(RankPlace(rank=rank, tp=rank)).find_rank_recorder,
        before_step=lambda _step: None,
    )
    try:
        while raw := commands.recv_bytes():
            worker.run_step(decode_work(raw))
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        pass  # the engine is gone or the user stopped us
    finally:
        end_run()

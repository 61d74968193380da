# Starts the ranks beyond the engine's own and hands each step's work to them.
import multiprocessing
from typing import TYPE_CHECKING

from otel_llmprism.testing.mini_engine.settings import EngineConfig
from otel_llmprism.testing.mini_engine.work import StepWork, encode_work
from otel_llmprism.testing.mini_engine.worker import run_worker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess


class RankGroup:
    """Owned by the engine's thread. `peers` are rank 0's pipes for the collective."""

    def __init__(self, config: EngineConfig) -> None:
        context = multiprocessing.get_context("spawn")
        self.peers: list[Connection] = []
        self._commands: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for rank in range(1, config.ranks):
            command, commands_there = context.Pipe()
            peer, to_root = context.Pipe()
            process = context.Process(
                target=run_worker, args=(rank, config, commands_there, to_root), name=f"rank{rank}"
            )
            process.start()
            commands_there.close()
            to_root.close()
            self._commands.append(command)
            self.peers.append(peer)
            self._processes.append(process)

    def send_work(self, work: StepWork) -> None:
        if self._commands:
            raw = encode_work(work)
            for command in self._commands:
                command.send_bytes(raw)

    def stop(self) -> None:
        """Close the pipes and wait until every rank has ended."""
        for pipe in (*self._commands, *self.peers):
            pipe.close()
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()
                process.join()

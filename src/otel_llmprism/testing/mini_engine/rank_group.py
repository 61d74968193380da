# Starts the ranks beyond the engine's own and hands each step's work to them.
import multiprocessing
from typing import TYPE_CHECKING

from otel_llmprism.testing.mini_engine.fault_injector import FaultPlan
from otel_llmprism.testing.mini_engine.rank_network import RankNetwork, accept_ranks, listen_for_ranks
from otel_llmprism.testing.mini_engine.settings import EngineConfig
from otel_llmprism.testing.mini_engine.work import StepWork, encode_work
from otel_llmprism.testing.mini_engine.worker import run_worker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess


class RankGroup:
    """Owned by the engine's thread. `peers` are rank 0's connections for the collective."""

    def __init__(
        self, config: EngineConfig, faults: FaultPlan | None = None, network: RankNetwork | None = None
    ) -> None:
        context = multiprocessing.get_context("spawn")
        is_by_tcp = config.ranks > 1 and network is not None and network.address
        listener, meeting = listen_for_ranks(network, config.ranks) if is_by_tcp and network else (None, None)
        self.peers: list[Connection] = []
        self._commands: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for rank in range(1, config.ranks):
            command, commands_there = context.Pipe()
            peer, to_root = context.Pipe()
            to_group = to_root if meeting is None else meeting
            process = context.Process(
                target=run_worker,
                args=(rank, config, commands_there, to_group, faults or FaultPlan()),
                name=f"rank{rank}",
            )
            process.start()
            commands_there.close()
            to_root.close()
            self._commands.append(command)
            self.peers.append(peer)
            self._processes.append(process)
        if listener is not None:
            for pipe in self.peers:
                pipe.close()
            self.peers = accept_ranks(listener, config.ranks)

    def list_pids(self) -> dict[int, int]:
        """Return the pid of each rank that is a process of its own."""
        return {rank: process.pid or 0 for rank, process in enumerate(self._processes, 1)}

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

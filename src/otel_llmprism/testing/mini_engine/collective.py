# An all-reduce between the ranks over pipes, rank 0 in the middle; it measures how long a rank waits
# for the others. Knows nothing of models and steps.
import time
from multiprocessing.connection import Connection

import numpy as np

from otel_llmprism.testing.mini_engine.model import Floats


class Group:
    """`peers`: on rank 0 the pipes to all others, elsewhere the one pipe to rank 0."""

    def __init__(self, rank: int, peers: list[Connection]) -> None:
        self._rank = rank
        self._peers = peers
        self._waited_ns = 0

    def take_waited_ns(self) -> int:
        """Return the time spent waiting since the last call."""
        waited, self._waited_ns = self._waited_ns, 0
        return waited

    def all_reduce(self, part: Floats) -> Floats:
        """Return the sum of every rank's `part`; EOFError when a rank is gone."""
        if not self._peers:
            return part
        return self._reduce_as_root(part) if self._rank == 0 else self._reduce_as_leaf(part)

    def _reduce_as_root(self, part: Floats) -> Floats:
        total = part.copy()
        for peer in self._peers:
            total += self._receive(peer).reshape(part.shape)
        raw = total.tobytes()
        for peer in self._peers:
            peer.send_bytes(raw)
        return total

    def _reduce_as_leaf(self, part: Floats) -> Floats:
        self._peers[0].send_bytes(part.tobytes())
        return self._receive(self._peers[0]).reshape(part.shape)

    def _receive(self, peer: Connection) -> Floats:
        began = time.monotonic_ns()
        raw = peer.recv_bytes()
        self._waited_ns += time.monotonic_ns() - began
        return np.frombuffer(raw, dtype=np.float32)

# An all-reduce between the ranks over pipes or TCP, rank 0 in the middle; it measures how long a rank waits
# for the others, and each call of a step that is watched. Knows nothing of models and steps.
import time
from multiprocessing.connection import Connection

import numpy as np

from otel_llmprism.native.ring_records import derive_group_hash
from otel_llmprism.testing.mini_engine.model import Floats

Seen = tuple[int, int, int]  # bytes, start_ns, end_ns of one call


class Group:
    """`peers`: on rank 0 the connections to all others, elsewhere the one to rank 0."""

    def __init__(self, rank: int, peers: list[Connection], ranks: int) -> None:
        self.number = derive_group_hash("tp", range(ranks))
        self.watches = False
        self._rank = rank
        self._peers = peers
        self._waited_ns = 0
        self._seen: list[Seen] = []

    def take_waited_ns(self) -> int:
        """Return the time spent waiting since the last call."""
        waited, self._waited_ns = self._waited_ns, 0
        return waited

    def take_seen(self) -> list[Seen]:
        """Return the watched calls since the last call of this."""
        seen, self._seen = self._seen, []
        return seen

    def all_reduce(self, part: Floats) -> Floats:
        """Return the sum of every rank's `part`; EOFError when a rank is gone."""
        if not self._peers:
            return part
        began_ns = time.monotonic_ns()
        total = self._reduce_as_root(part) if self._rank == 0 else self._reduce_as_leaf(part)
        if self.watches:
            self._seen.append((part.nbytes, began_ns, time.monotonic_ns()))
        return total

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

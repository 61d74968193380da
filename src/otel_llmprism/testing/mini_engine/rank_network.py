# How the ranks' collectives reach each other: by pipes, or by TCP where a rank may stand in a network
# namespace of its own (as on another host). Knows no collective.
import ctypes
import os
import socket
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

_NAMESPACES = Path("/var/run/netns")
_CLONE_NEWNET = 0x40000000
_MAX_HELLO = 16


@dataclass(frozen=True, slots=True)
class RankNetwork:
    """`address`: of rank 0, empty for pipes; `namespace`: where the other ranks stand, empty for here."""

    address: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where a rank finds rank 0."""

    address: tuple[str, int]
    namespace: str


def listen_for_ranks(network: RankNetwork, ranks: int) -> tuple[Listener, Meeting]:
    """Open rank 0's port."""
    listener = Listener((network.address, 0), backlog=ranks)
    host, port = listener.address[:2]
    return listener, Meeting((str(host), int(port)), network.namespace)


def accept_ranks(listener: Listener, ranks: int) -> list[Connection]:
    """Return the connections of ranks 1, 2 ... in their order, once all are there."""
    found: dict[int, Connection] = {}
    while len(found) < ranks - 1:
        connection = listener.accept()
        send_at_once(connection)
        found[int(connection.recv_bytes(_MAX_HELLO))] = connection
    listener.close()
    return [found[rank] for rank in sorted(found)]


def join_rank_zero(rank: int, meeting: Meeting) -> Connection:
    """Connect to rank 0, from the namespace that the meeting names; this thread stays in it."""
    if meeting.namespace:
        enter_namespace(meeting.namespace)
    connection: Connection = Client(meeting.address)
    send_at_once(connection)
    connection.send_bytes(str(rank).encode())
    return connection


def send_at_once(connection: Connection) -> None:
    """Let small parts go without waiting for more: a collective waits for each of them."""
    with socket.socket(fileno=os.dup(connection.fileno())) as shared:
        shared.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def enter_namespace(name: str) -> None:
    """Move this thread into a network namespace that `ip netns add` made; OSError when it cannot."""
    with (_NAMESPACES / name).open("rb") as file:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            error = ctypes.get_errno()
            raise OSError(error, f"{os.strerror(error)}: network namespace {name}")

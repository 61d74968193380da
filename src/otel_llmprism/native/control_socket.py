# The control sockets of instrumented processes: where they lie, who is behind one, and how a line of JSON
# goes there and back. Both ends use it; what the lines mean is control_commands.py's business.
import contextlib
import json
import os
import re
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from otel_llmprism.native.run_folder import SHARED_MEMORY

PROTOCOL_VERSION = 1
MAX_REQUEST_BYTES = 4096
MAX_ANSWER_BYTES = 1 << 18
ASK_TIMEOUT_S = 2.0
MAX_DEEP_STEPS = 10_000  # of one request: minutes of an engine, not days
_NAME = re.compile(r"([1-9][0-9]{0,9})\.sock\Z")
_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid


class ControlError(Exception):
    """A process does not answer, or says no; the text says why."""


class Peer(NamedTuple):
    pid: int
    uid: int
    gid: int


def list_socket_roots(environment: Mapping[str, str], uid: int | None = None) -> list[Path]:
    """Return where sockets of that user (default: ours) may lie, best first."""
    owner = os.geteuid() if uid is None else uid
    if asked := environment.get("OTEL_LLMPRISM_RUNTIME_DIR"):
        return [Path(asked)]
    session = environment.get("XDG_RUNTIME_DIR")
    roots = [Path(session) / "llmprism"] if session else []
    return [*roots, SHARED_MEMORY / f"llmprism-{owner}"]


def find_sockets(root: Path) -> dict[int, Path]:
    """Return the sockets in a folder by their process; empty when it cannot be read."""
    try:
        paths = list(root.iterdir())
    except OSError:
        return {}
    return {int(match[1]): path for path in paths if (match := _NAME.match(path.name))}


def remove_dead_sockets(root: Path) -> int:
    """Remove sockets that nobody listens to any more; return how many."""
    removed = 0
    for path in find_sockets(root).values():
        # Asked by connecting, not by pid: another container that shares the folder counts its own pids.
        if is_dead(path):
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
    return removed


def is_dead(path: Path) -> bool:
    """Tell whether nobody listens behind a socket that exists."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, _reachable(path) as address:
        probe.setblocking(False)
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def bind_socket(path: Path) -> socket.socket:
    """Return a listening socket at `path`, for its user only; OSError when something living is there."""
    with contextlib.suppress(FileNotFoundError):
        if is_dead(path):
            path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _reachable(path) as address:
            listener.bind(address)
        path.chmod(0o600)  # before listen: until then nobody gets in
        listener.listen(8)
    except BaseException:
        listener.close()
        raise
    return listener


def read_peer(connection: socket.socket) -> Peer:
    """Return who is at the other end, as the kernel says."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Peer(*_CREDENTIALS.unpack(raw))


def ask_process(
    path: Path, request: Mapping[str, object], timeout_s: float = ASK_TIMEOUT_S
) -> dict[str, Any]:
    """Send one request and return the answer; ControlError when there is none or it says no."""
    deadline_s = time.monotonic() + timeout_s
    line = json.dumps({"version": PROTOCOL_VERSION, **request}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, _reachable(path) as address:
            connection.settimeout(timeout_s)
            connection.connect(address)
            _check_owner(read_peer(connection))
            with contextlib.suppress(BrokenPipeError):  # refused before it was asked: the answer is there
                connection.sendall(line)
            raw = read_line(connection, MAX_ANSWER_BYTES, deadline_s)
    except OSError as error:
        raise ControlError(f"{path} does not answer: {error.strerror or error}") from error
    return _read_answer(path, raw)


def read_line(connection: socket.socket, max_bytes: int, deadline_s: float, begun: bytes = b"") -> bytes:
    """Return what came up to and with the first newline, at most `max_bytes`; empty at the end.

    TimeoutError when the deadline (CLOCK_MONOTONIC) passes first. What came after the newline is included.
    """
    buffer = bytearray(begun)
    while b"\n" not in buffer and len(buffer) <= max_bytes:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left_s)
        part = connection.recv(min(65536, max_bytes + 1))
        if not part:
            break
        buffer += part
    return bytes(buffer)


def _read_answer(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(raw)
    except ValueError as error:
        raise ControlError(f"{path} gave no answer that can be read") from error
    if not isinstance(answer, dict):
        raise ControlError(f"{path} gave no answer that can be read")
    if answer.get("ok") is not True:
        raise ControlError(str(answer.get("error", "refused"))[:500])
    return answer


def _check_owner(peer: Peer) -> None:
    # Root looks after everybody's processes; anyone else believes only what is theirs or root's.
    if os.geteuid() != 0 and peer.uid not in {os.geteuid(), 0}:
        raise PermissionError(0, "another user listens there")


@contextlib.contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """Give a name of the socket that is short enough: the kernel takes 107 bytes."""
    if len(os.fsencode(path)) <= 107:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)

# This process's control socket: one daemon thread that waits in accept() and costs nothing until somebody
# asks. Lines of JSON in, lines of JSON out; what they mean is control_commands.py's business. Nothing here
# raises into the user's process, touches its signals' handlers, or holds a lock of the engine.
import atexit
import contextlib
import errno
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from otel_llmprism.instrumentation.control_commands import answer_request
from otel_llmprism.native.control_socket import (
    MAX_REQUEST_BYTES,
    PROTOCOL_VERSION,
    bind_socket,
    list_socket_roots,
    read_line,
    read_peer,
    remove_dead_sockets,
)
from otel_llmprism.native.run_folder import RuntimeFolderError, check_private

CONNECTION_S = 2.0  # what one client may take, so that a stuck one keeps others out no longer
MAX_LINES = 16  # of one connection
_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED}
_SHORTAGE_S = 0.5  # an engine may run out of descriptors for a moment

_lock = threading.Lock()
_server: "ControlServer | None" = None
_is_told = False


def open_control(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Listen, once a process; return the socket's path, None when there is no place for it. Never raises."""
    global _server, _is_told  # noqa: PLW0603  one process, one socket
    with _lock:
        if _server is None and not _is_told:
            try:
                _server = ControlServer(_bind_somewhere(environment))
            except Exception as error:  # noqa: BLE001  the engine goes on without being controlled
                _is_told = True
                _warn(error)
        return _server.path if _server else None


def close_control() -> None:
    """Stop listening and remove the socket."""
    global _server
    with _lock:
        server, _server = _server, None
    if server is not None:
        server.close()


class ControlServer:
    """Owns a bound socket and the thread behind it."""

    def __init__(self, bound: tuple[socket.socket, Path]) -> None:
        self._listener, self.path = bound
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._serve, name="llmprism-control", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # a limit of threads: what nobody answers must not be there
            self._listener.close()
            self.path.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        """Remove the socket and wait for a moment for the thread; only in the process that made it."""
        if os.getpid() != self._pid:
            return
        with contextlib.suppress(OSError):
            self.path.unlink()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept(), which close() would not
        self._thread.join(CONNECTION_S)
        self._listener.close()

    def drop_in_child(self) -> None:
        """Close a forked child's copy: with it open, the parent's end would never show to clients."""
        self._listener.close()

    def _serve(self) -> None:
        # A signal that the kernel gave to this thread would not wake a main thread that waits for it.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    return  # closed
                time.sleep(_SHORTAGE_S)
                continue
            with connection, contextlib.suppress(Exception):
                serve_connection(connection)


def serve_connection(connection: socket.socket) -> None:
    """Answer a client's lines until it ends or takes too long; OSError when it breaks off."""
    deadline_s = time.monotonic() + CONNECTION_S
    connection.settimeout(CONNECTION_S)
    if read_peer(connection).uid not in {os.geteuid(), 0}:
        connection.sendall(_encode({"ok": False, "error": "only this process's user and root may ask"}))
        return
    rest = b""
    for _ in range(MAX_LINES):
        try:
            raw = read_line(connection, MAX_REQUEST_BYTES, deadline_s, rest)
        except TimeoutError:
            connection.settimeout(CONNECTION_S)
            connection.sendall(_encode({"ok": False, "error": f"no whole line within {CONNECTION_S:g} s"}))
            return
        line, newline, rest = raw.partition(b"\n")
        if not newline and len(raw) <= MAX_REQUEST_BYTES:
            return  # the client is done
        connection.settimeout(CONNECTION_S)
        if len(line) > MAX_REQUEST_BYTES:
            connection.sendall(
                _encode({"ok": False, "error": f"a line is longer than {MAX_REQUEST_BYTES} bytes"})
            )
            return
        connection.sendall(_encode(answer_line(line)))


def answer_line(line: bytes) -> dict[str, object]:
    """Answer one line, whatever it is."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return {"ok": False, "error": "this is no JSON; send one object a line"}
    try:
        return answer_request(request)
    except Exception as error:  # noqa: BLE001  a client's question is no reason to end
        return {"ok": False, "error": f"this cannot be answered: {type(error).__name__}"}


def _encode(answer: dict[str, object]) -> bytes:
    return json.dumps({"version": PROTOCOL_VERSION, **answer}).encode() + b"\n"


def _bind_somewhere(environment: Mapping[str, str]) -> tuple[socket.socket, Path]:
    problems = []
    for root in list_socket_roots(environment):
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_private(root)
            remove_dead_sockets(root)
            path = root / f"{os.getpid()}.sock"
            return bind_socket(path), path
        except (OSError, RuntimeFolderError) as error:
            problems.append(f"{root}: {error}")
    raise RuntimeFolderError("; ".join(problems))


def _warn(error: Exception) -> None:
    import logging  # noqa: PLC0415  a third of our import time, for a line that is hardly ever written

    logging.getLogger("otel_llmprism").warning(
        "llmprism: `otel-llmprism control` cannot reach this process: %s; set OTEL_LLMPRISM_RUNTIME_DIR to "
        "a writable folder of this user with mode 0700",
        error,
    )


def _forget_after_fork() -> None:
    global _server, _lock, _is_told  # noqa: PLW0603
    server, _server, _is_told = _server, None, False
    _lock = threading.Lock()  # another thread of the parent may have held it
    if server is not None:
        server.drop_in_child()


os.register_at_fork(after_in_child=_forget_after_fork)
atexit.register(close_control)

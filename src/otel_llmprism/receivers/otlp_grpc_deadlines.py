# Ends gRPC calls whose message does not arrive in time: gRPC itself waits for ever, and each waiting
# call holds a thread. Calls come in with watch(); the late ones are cancelled, which frees the thread.
import contextlib
import threading
from collections.abc import Callable, Iterator

import grpc

_SWEEPS_PER_TIMEOUT = 4


class ReceiveDeadlines:
    """A call is cancelled at most a quarter of `timeout_s` late. Thread-safe."""

    def __init__(self, timeout_s: float, clock: Callable[[], float]) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._due: dict[grpc.ServicerContext, float] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp-grpc-deadlines", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    @contextlib.contextmanager
    def watch(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Cancel `context` unless the block is left in time."""
        self._due[context] = self._clock() + self._timeout_s
        try:
            yield
        finally:
            del self._due[context]

    def cancel_late(self) -> None:
        """Cancel every call that is due by now."""
        now_s = self._clock()
        # The copy is one atomic step under the GIL; a call that ends meanwhile ignores the cancel.
        for context, due_s in self._due.copy().items():
            if due_s <= now_s:
                context.cancel()

    def _run(self) -> None:
        while not self._stopped.wait(self._timeout_s / _SWEEPS_PER_TIMEOUT):
            self.cancel_late()

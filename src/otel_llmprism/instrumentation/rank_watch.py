# What a worker's hook does round each of its steps: device time, sampled collectives, one rank record.
# Step ids and host times in, ring records out. A record waits a few steps for its device time; when the
# engine goes idle a thread of ours, which never touches the device, writes what is left.
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from otel_llmprism.instrumentation.collective_window import WINDOW, CollectiveWindow
from otel_llmprism.instrumentation.device_time import DevicePairs
from otel_llmprism.instrumentation.rank_records import RankRecorder
from otel_llmprism.native.ring_records import UNKNOWN_NS

EVERY_VARIABLE = "OTEL_LLMPRISM_COLLECTIVES_EVERY"
DEFAULT_EVERY = 50
MAX_HELD = 8  # steps: more than any engine launches ahead
IDLE_NS = 300_000_000  # well below the time for which a step waits for its ranks
_IDLE_CHECK_S = 0.15


def read_every(environment: Mapping[str, str]) -> int:
    """Return of how many steps one has its collectives recorded; 0: none but deep ones."""
    text = environment.get(EVERY_VARIABLE, "").strip()
    return int(text) if text.isdecimal() and len(text) < 10 else DEFAULT_EVERY


@dataclass(slots=True)
class _Held:
    """A step's record, until the device has told of all its stretches."""

    start_ns: int
    end_ns: int
    wait_ns: int
    missing: int
    device_ns: int = 0


class RankWatch:
    """One per rank; begin and end are called by the thread that runs its steps. Never raises."""

    def __init__(
        self,
        recorder: RankRecorder,
        pairs: DevicePairs[int] | None = None,
        window: CollectiveWindow = WINDOW,
        every: int | None = None,
    ) -> None:
        self._recorder = recorder
        self._pairs = pairs if pairs is not None else DevicePairs[int]()
        self._window = window
        self._every = read_every(os.environ) if every is None else every
        self._held: dict[int, _Held] = {}
        self._step = -1
        self._stretches = 0  # of the open step
        self._lock = threading.Lock()
        self._last_ns = 0
        self._idle_thread: threading.Thread | None = None
        self._is_closed = threading.Event()

    def begin(self, step_id: int, *, is_deep: bool = False, is_on_stream: bool = True) -> None:
        """Tell that this rank's part of the step begins here; a step id below 0 is none of ours.

        Where the device's work goes to another stream than the current one, `begin_device` tells.
        """
        self._step, self._stretches = -1, 0
        if step_id < 0 or self._recorder.hook.is_off:
            return
        self._step = step_id
        if self._held:
            with self._lock:
                self._last_ns = time.monotonic_ns()
                self._settle()
        if is_on_stream:
            self.begin_device()
        if is_deep or (self._every and step_id % self._every == 0):
            self._window.open(step_id, self._recorder)

    def begin_device(self) -> None:
        """Tell that device work of the open step follows on the current stream."""
        if self._step >= 0:
            self._pairs.start(self._step)

    def end_device(self) -> None:
        """Tell that this stretch of device work was launched; the stretches of a step add up."""
        if self._pairs.stop():
            self._stretches += 1

    def end(self, step_id: int, start_ns: int, end_ns: int) -> None:
        """Tell that it is over; its record is written now, or when its device time is there."""
        wait_ns = self._window.close()
        self.end_device()
        stretches, self._step = self._stretches, -1
        if step_id < 0:
            return
        with self._lock:
            if not stretches and not self._window.is_untold(step_id):
                self._recorder.record_rank(step_id, start_ns, end_ns, UNKNOWN_NS, wait_ns)
                return
            self._held[step_id] = _Held(start_ns, end_ns, wait_ns, stretches)
            self._last_ns = time.monotonic_ns()
            self._settle()
            while len(self._held) > MAX_HELD:
                self._write(next(iter(self._held)))
        self._watch_idle()

    def flush(self) -> None:
        """Write what waits for its device time, as far as it is known."""
        with self._lock:
            self._settle()
            for step_id in list(self._held):
                self._write(step_id)

    def close(self) -> None:
        """Flush, and watch no more."""
        self._is_closed.set()
        if self._idle_thread is not None:
            self._idle_thread.join()
        self.flush()

    def write_idle(self, now_ns: int) -> None:
        """Write what is held when no step has come for a while; asks no device, from any thread."""
        with self._lock:
            if self._held and now_ns - self._last_ns > IDLE_NS:
                for step_id in list(self._held):
                    self._write(step_id)

    def _settle(self) -> None:
        for step_id, device_ns in self._pairs.poll():
            held = self._held.get(step_id)
            if held is not None:
                held.missing -= 1
                held.device_ns += device_ns
        for step_id, held in list(self._held.items()):
            if held.missing == 0 and not self._window.is_untold(step_id):
                self._write(step_id)

    def _write(self, step_id: int) -> None:
        held = self._held.pop(step_id)
        wait_ns = held.wait_ns if held.wait_ns != UNKNOWN_NS else self._window.finish(step_id)
        device_ns = UNKNOWN_NS if held.missing or not held.device_ns else held.device_ns
        self._recorder.record_rank(step_id, held.start_ns, held.end_ns, device_ns, wait_ns)

    def _watch_idle(self) -> None:
        if self._idle_thread is None and not self._is_closed.is_set():
            self._idle_thread = threading.Thread(
                target=self._run_idle_watch, name="llmprism-rank", daemon=True
            )
            self._idle_thread.start()

    def _run_idle_watch(self) -> None:
        while not self._is_closed.wait(_IDLE_CHECK_S):
            self.write_idle(time.monotonic_ns())

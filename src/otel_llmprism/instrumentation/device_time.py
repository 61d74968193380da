# How long the device worked on a step: a pair of events recorded on the current stream, asked for later.
# Keys and stream moments in, nanoseconds out. It never synchronises and never initialises a device: without
# one, or while a graph is captured, it does nothing.
import sys
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

K = TypeVar("K")

MAX_IN_FLIGHT = 64  # pairs: far more steps than an engine launches ahead; beyond it the oldest goes
_NS_PER_MS = 1_000_000


class DeviceEvent(Protocol):
    """What torch.cuda.Event(enable_timing=True) offers."""

    def record(self) -> None: ...

    def query(self) -> bool: ...

    def elapsed_time(self, end: "DeviceEvent", /) -> float: ...  # milliseconds


MakeEvent = Callable[[], DeviceEvent]


def find_event_maker() -> MakeEvent | None:
    """Return what makes timing events now; None without a device in use, or while a graph is captured."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized() or cuda.is_current_stream_capturing():
        return None
    return lambda: cuda.Event(enable_timing=True)


class DevicePairs(Generic[K]):
    """Times stretches of the current stream; keys come back in the order in which they were started."""

    def __init__(
        self,
        find_maker: Callable[[], MakeEvent | None] = find_event_maker,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self.dropped = 0  # pairs that were never told
        self._find_maker = find_maker
        self._max_in_flight = max_in_flight
        self._open: tuple[K, DeviceEvent] | None = None
        self._in_flight: deque[tuple[K, DeviceEvent, DeviceEvent]] = deque()
        self._free: list[DeviceEvent] = []
        self._is_broken = False

    def can_record(self) -> bool:
        """Tell whether a stretch could be timed now."""
        try:
            return not self._is_broken and self._find_maker() is not None
        except Exception:  # noqa: BLE001  a device in trouble is the user's to see, not ours to raise
            self._is_broken = True
            return False

    def start(self, key: K) -> None:
        """Mark the beginning; a stretch that was begun and never stopped is forgotten."""
        self._forget_open()
        if self._is_broken:
            return
        try:
            maker = self._find_maker()
            if maker is not None:
                self._open = key, self._record_event(maker)
        except Exception:  # noqa: BLE001  as above
            self._is_broken = True

    def stop(self) -> bool:
        """Mark the end; True when the time of this stretch will be told by `poll`."""
        if self._open is None:
            return False
        try:
            maker = self._find_maker()
            if maker is None:
                self._forget_open()
                return False
            end = self._record_event(maker)
        except Exception:  # noqa: BLE001  as above
            self._is_broken, self._open = True, None
            return False
        if len(self._in_flight) >= self._max_in_flight:
            self._drop_oldest()
        self._in_flight.append((*self._open, end))
        self._open = None
        return True

    def poll(self) -> list[tuple[K, int]]:
        """Return the stretches that are over, with their nanoseconds; those under way stay."""
        finished: list[tuple[K, int]] = []
        if not self._in_flight or not self.can_record():  # asking for an event would end a capture
            return finished
        try:
            while self._in_flight and self._in_flight[0][2].query():
                key, start, end = self._in_flight.popleft()
                finished.append((key, round(start.elapsed_time(end) * _NS_PER_MS)))
                self._free += (start, end)
        except Exception:  # noqa: BLE001  as above
            self._is_broken = True
            self.dropped += len(self._in_flight)
            self._in_flight.clear()
        return finished

    def _record_event(self, maker: MakeEvent) -> DeviceEvent:
        event = self._free.pop() if self._free else maker()
        event.record()
        return event

    def _forget_open(self) -> None:
        if self._open is not None:
            self._free.append(self._open[1])
            self._open = None

    def _drop_oldest(self) -> None:
        _, start, end = self._in_flight.popleft()
        self._free += (start, end)  # recording an event again is allowed while it is under way
        self.dropped += 1

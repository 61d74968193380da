# The time in which collectives are looked at: from the begin to the end of this process's part in a sampled
# step. Calls of that step in, ring records and the time spent in them out. On a device a call's time is told
# later, by events; the host's clock would only tell when it was enqueued.
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from otel_llmprism.instrumentation.device_time import DevicePairs
from otel_llmprism.instrumentation.rank_records import RankRecorder
from otel_llmprism.native.ring_records import UNKNOWN_NS

MAX_FAILURES = 10  # of ours; then no window opens any more
MAX_CALLS = 4000  # of one step: beyond what the deepest models do, and half of what a step may carry


@dataclass(frozen=True, slots=True)
class Collective:
    """What one call says of itself before it runs."""

    op: int  # ring_codes.CollectiveOp
    group: int  # derive_group_hash: the same on all its members
    bytes: int  # that this rank gives, or gets where it only receives
    is_on_device: bool = False
    is_async: bool = False  # it returns Works, and the waiting is theirs


ReadCall = Callable[[tuple[Any, ...], dict[str, Any]], Collective | None]


@dataclass(slots=True)
class _Step:
    """One sampled step; `untold` are its calls whose time is still to come."""

    step_id: int
    recorder: RankRecorder
    wait_ns: int = 0
    has_unknown: bool = False
    untold: "dict[int, _Part]" = field(default_factory=dict)


@dataclass(slots=True)
class _Part:
    """One call's part in its step; several Works of it add up."""

    step: _Step
    call: Collective
    seq: int
    missing: int = 1  # measurements that are still to come
    start_ns: int = UNKNOWN_NS
    spent_ns: int = 0

    def note_time(self, spent_ns: int, start_ns: int = UNKNOWN_NS) -> None:
        """Add one measurement; the last one writes the record."""
        if id(self) not in self.step.untold:
            return  # given up by now
        self.start_ns = min(self.start_ns, start_ns)
        self.spent_ns += spent_ns
        self.missing -= 1
        if self.missing == 0:
            self.step.wait_ns += self.spent_ns
            if self.call.is_on_device:
                self._write(UNKNOWN_NS, UNKNOWN_NS, self.spent_ns)
            else:
                self._write(self.start_ns, self.start_ns + self.spent_ns)

    def give_up(self) -> None:
        """Write what is known: that the call was made."""
        self.step.has_unknown = True
        self._write(UNKNOWN_NS, UNKNOWN_NS)

    def _write(self, start_ns: int, end_ns: int, device_ns: int = UNKNOWN_NS) -> None:
        step, call = self.step, self.call
        step.untold.pop(id(self), None)
        step.recorder.record_collective(
            step.step_id, call.group, self.seq, call.op, call.bytes, start_ns, end_ns, device_ns
        )


class CollectiveWindow:
    """One per process. `recorder` is what a wrap looks at: None while nothing is to be recorded."""

    def __init__(self, pairs: "DevicePairs[_Part] | None" = None) -> None:
        self.recorder: RankRecorder | None = None
        self._pairs = pairs if pairs is not None else DevicePairs[_Part](max_in_flight=2 * MAX_CALLS)
        self._step: _Step | None = None
        self._closed: dict[int, _Step] = {}  # those that the device has still to tell of
        self._thread = 0
        self._next_seq: dict[int, int] = {}
        self._works: dict[int, tuple[Any, _Part]] = {}  # by id; held, so that no other takes the id
        self._calls = self._failures = 0

    def open(self, step_id: int, recorder: RankRecorder) -> None:
        """Record the collectives of this thread from now on, as those of the step."""
        if self._step is not None:  # its step broke off
            former = self._step.step_id
            self.close()
            self.finish(former)
        if self._failures >= MAX_FAILURES or recorder.hook.is_off:
            return
        self._step = _Step(step_id, recorder)
        self._thread = threading.get_ident()
        self._next_seq.clear()
        self._calls = 0
        self.recorder = recorder

    def close(self) -> int:
        """End it; return the nanoseconds that this rank spent in collectives.

        UNKNOWN_NS where none was open, or where the device has still to tell: see `finish`.
        """
        step, self._step, self.recorder = self._step, None, None
        if step is None:
            return UNKNOWN_NS
        works, self._works = self._works, {}
        for part in {id(part): part for _, part in works.values()}.values():
            part.give_up()  # nobody waited for it in its own step
        if step.untold:
            self._closed[step.step_id] = step
            return UNKNOWN_NS
        return UNKNOWN_NS if step.has_unknown else step.wait_ns

    def is_untold(self, step_id: int) -> bool:
        """Tell whether the device has still to tell of a closed step; asks it, without waiting."""
        for part, device_ns in self._pairs.poll() if self._closed else ():
            part.note_time(device_ns)
        step = self._closed.get(step_id)
        return step is not None and bool(step.untold)

    def finish(self, step_id: int) -> int:
        """Write a closed step's calls as far as they are known; return their time as `close` would."""
        step = self._closed.pop(step_id, None)
        if step is None:
            return UNKNOWN_NS
        for part in list(step.untold.values()):
            part.give_up()
        return UNKNOWN_NS if step.has_unknown else step.wait_ns

    def watch_call(
        self, read: ReadCall, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make the call, and book it if it is one of the open step's."""
        part = self._begin(read, args, kwargs)
        if part is None:
            return original(*args, **kwargs)
        recorder, self.recorder = self.recorder, None  # what it calls inside is this very collective
        start_ns = time.monotonic_ns()
        try:
            result = original(*args, **kwargs)
        except BaseException:
            part.step.untold.pop(id(part), None)
            raise
        finally:
            end_ns = time.monotonic_ns()
            self.recorder = recorder
        try:
            self._end(part, result, start_ns, end_ns)
        except Exception:  # noqa: BLE001  the user has the result all the same
            self._failures += 1
        return result

    def watch_wait(
        self, original: Callable[..., Any], work: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Wait for a Work, and book that if its call was booked."""
        if threading.get_ident() != self._thread or id(work) not in self._works:
            return original(work, *args, **kwargs)
        _, part = self._works.pop(id(work))
        if part.call.is_on_device:
            self._pairs.start(part)
        start_ns = time.monotonic_ns()
        try:
            return original(work, *args, **kwargs)
        finally:
            self._measure(part, start_ns, time.monotonic_ns())

    def _begin(self, read: ReadCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Part | None:
        step = self._step
        if step is None or self._calls >= MAX_CALLS or threading.get_ident() != self._thread:
            return None
        try:
            call = read(args, kwargs)
            if call is None or (call.is_on_device and not self._pairs.can_record()):
                return None
            self._calls += 1
            seq = self._next_seq.get(call.group, 0)
            self._next_seq[call.group] = seq + 1
            part = _Part(step, call, seq)
            step.untold[id(part)] = part
            if call.is_on_device and not call.is_async:
                self._pairs.start(part)
        except Exception:  # noqa: BLE001  the user's call goes on
            self._failures += 1
            return None
        return part

    def _end(self, part: _Part, result: Any, start_ns: int, end_ns: int) -> None:
        if not part.call.is_async:
            self._measure(part, start_ns, end_ns)
            return
        works = [work for work in result if work is not None] if isinstance(result, list) else [result]
        part.missing = len(works)
        if not works or works[0] is None:
            part.give_up()
            return
        for work in works:
            self._works[id(work)] = work, part

    def _measure(self, part: _Part, start_ns: int, end_ns: int) -> None:
        if not part.call.is_on_device:
            part.note_time(end_ns - start_ns, start_ns)
        elif not self._pairs.stop():
            part.give_up()


WINDOW = CollectiveWindow()

# Which steps become spans at random: on average one a second and engine, decided at schedule time, so
# that the decision can travel with the step id. Time comes in as an argument.
import math
from collections import deque
from typing import NamedTuple

from otel_llmprism.model.ids import start_step_hash
from otel_llmprism.native.extension import revoke_lanes
from otel_llmprism.native.ring_members import CHECK_EVERY
from otel_llmprism.native.ring_records import Kept, Mode

_SECOND_NS = 1_000_000_000
DRAWN_AHEAD = 64  # steps whose trace ids are hashed together; as many can be lent ahead
_ABOVE_ALL = b"\xff" * 33  # sorts after every SHA-256 digest
# Looking a member up in an enumeration costs as much as a call.
_NO, _RANDOM, _ALL = Kept.NO, Kept.RANDOM, Kept.ALL
_SENTINEL, _DEEP = Mode.SENTINEL, Mode.DEEP
_new_tuple = tuple.__new__


class StepTicket(NamedTuple):
    """What travels with a step from the scheduler to workers and ledger."""

    step_id: int
    kept: int  # ring_records.Kept
    probability: float
    mode: int = Mode.SENTINEL  # ring_records.Mode


class StepsAhead(NamedTuple):
    """Steps that are decided though nobody has scheduled them yet, should they start in time."""

    step: int  # the first
    kept: bytes  # of each
    probability: float
    end_ns: int


class StepKeeper:
    """Numbers the steps of one run from 0 and decides for each at once. One thread, but for keep_deep."""

    def __init__(self, engine_id: str, run: bytes, steps: str) -> None:
        self._hash = start_step_hash(engine_id, run)
        self._steps = steps
        self._next_step = 0
        self._second = -1
        self._in_second = 0
        self._probability = 1.0
        self._bound = _ABOVE_ALL
        self._draws: list[bytes] = []
        self._kept_ahead = b""  # what becomes of them
        self._first_drawn = -DRAWN_AHEAD
        self.mode = Mode.SENTINEL  # DEEP: every step is deep, until told otherwise
        self._deep_asked: deque[int] = deque(maxlen=8)  # another thread's wishes, not taken yet
        self._deep_left = 0

    def keep_deep(self, steps: int) -> None:
        """Make the next `steps` whole steps deep; of two wishes the longer holds. From any thread."""
        self._deep_asked.append(steps)
        revoke_lanes()

    @property
    def deep_left(self) -> int:
        """How many deep steps are still to be scheduled."""
        return max(self._deep_left, *self._deep_asked, 0)

    def skip_to(self, step_id: int) -> None:
        """Give the next step this id, where the engine has a number that all its ranks know; never back."""
        self._next_step = max(self._next_step, step_id)

    @property
    def is_deep(self) -> bool:
        """Tell whether the next step is, or may be, a deep one."""
        return bool(self._deep_left or self._deep_asked or self.mode != _SENTINEL)

    def look_ahead(self, most: int) -> StepsAhead | None:
        """Return up to `most` steps that are decided, none of them one that is held against its batch.

        None when each step has to be asked for.
        """
        if self.is_deep or self._steps != "sample":
            return None
        most = min(most, -self._next_step % CHECK_EVERY)
        drawn = self._next_step - self._first_drawn
        kept = self._kept_ahead[drawn : drawn + most]
        return StepsAhead(self._next_step, kept, self._probability, (self._second + 1) * _SECOND_NS)

    def skip_lent(self, steps: int) -> None:
        """Take so many of look_ahead's steps as scheduled."""
        self._next_step += steps
        self._in_second += steps

    def admit_step(self, now_ns: int) -> StepTicket:
        """Give the next step its id and decide whether it is kept."""
        step_id = self._next_step
        self._next_step += 1
        if self._deep_left or self._deep_asked or self.mode == _DEEP:
            return self._admit_deep(step_id)
        if self._steps != "sample":
            return StepTicket(step_id, *((_ALL, 1.0) if self._steps == "all" else (_NO, 0.0)))
        second = now_ns // _SECOND_NS
        if second != self._second:
            self._turn_second(second)
        self._in_second += 1
        drawn = step_id - self._first_drawn
        if drawn >= DRAWN_AHEAD:
            self._draw_ahead(step_id)
            drawn = 0
        # A name tuple's own constructor is a Python function: one call more in a step.
        return _new_tuple(
            StepTicket,
            (
                step_id,
                self._kept_ahead[drawn],
                self._probability,
                _SENTINEL,
            ),
        )

    def _turn_second(self, second: int) -> None:
        in_previous = self._in_second if second == self._second + 1 else 0
        self._second, self._in_second = second, 0
        self._probability = 1.0 / in_previous if in_previous > 1 else 1.0
        # The decision of is_kept_at_random, as a comparison of bytes.
        bound = math.ceil(self._probability * 2.0**64)
        self._bound = bound.to_bytes(8, "big") if bound < 1 << 64 else _ABOVE_ALL
        self._decide_ahead()

    def _draw_ahead(self, step_id: int) -> None:
        """Hash some steps at once: alone, with cold caches, each costs five times as much."""
        self._first_drawn = step_id
        self._draws = []
        for number in range(step_id, step_id + DRAWN_AHEAD):
            state = self._hash.copy()
            state.update(b"%d" % number)
            self._draws.append(state.digest())
        self._decide_ahead()

    def _decide_ahead(self) -> None:
        bound = self._bound
        self._kept_ahead = bytes([_RANDOM if draw < bound else _NO for draw in self._draws])

    def _admit_deep(self, step_id: int) -> StepTicket:
        while self._deep_asked:
            self._deep_left = max(self._deep_left, self._deep_asked.popleft())
        self._deep_left = max(self._deep_left - 1, 0)
        # The user's `all` has no bounds, which a deep step has, and `none` is none whoever asks.
        kept = {"all": (_ALL, 1.0), "none": (_NO, 0.0)}.get(self._steps, (Kept.DEEP, 1.0))
        return StepTicket(step_id, *kept, _DEEP)

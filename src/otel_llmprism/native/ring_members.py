# Which requests a step served, told as changes: scheduled tokens in, entries for STEP_MEMBERS out.
# The prediction both sides share: a request in the running set gets one decode token in each step of
# its lane; whatever differs is listed, so that nothing has to be assumed when tokens are summed up.
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from otel_llmprism.native.ring_records import Member, pack_member

LANE_SHIFT = 16  # a slot's lane is its upper half
SLOTS_PER_LANE = 1 << LANE_SHIFT
_MANY = 8
CHECK_EVERY = 64  # steps; a look at every request costs 5 us at batch 256

# What pack_member makes of a change, with the tokens left out.
_PREFILL_BIT = pack_member(Member.TOKENS, 0, 0, 0, prefill=True)[2]
_LEFT_WORD = pack_member(Member.LEFT, 0, 0, 0, prefill=False)[2]
_JOINED_DECODE = pack_member(Member.JOINED, 0, 0, 0, prefill=False)[2]
_JOINED_PREFILL = _JOINED_DECODE | _PREFILL_BIT

Key = TypeVar("Key")
Entry = tuple[int, int, int]


class RunningSet(Generic[Key]):
    """Gives each running request a slot; used by the scheduler's thread alone."""

    def __init__(self, handle_of: Callable[[Key], int]) -> None:
        self._handle_of = handle_of
        self._places: dict[Key, tuple[int, int]] = {}  # slot, handle
        self._lanes: dict[int, dict[Key, None]] = {}
        self._free: dict[int, list[int]] = {}
        self._left: list[Entry] = []
        self._idle: list[Key] = []  # those that the step before left out
        self._must_repeat = True
        self._diffs = 0

    def leave(self, keys: Iterable[Key]) -> None:
        """Take finished, aborted or preempted requests out; told with the next step."""
        for key in keys:
            place = self._places.pop(key, None)
            if place is None:
                continue
            slot, handle = place
            lane = slot >> LANE_SHIFT
            del self._lanes[lane][key]
            self._free[lane].append(slot)
            self._left.append((handle, slot, _LEFT_WORD))

    def repeat_all(self) -> None:
        """Tell the whole running set with the next step: the ring dropped a record with changes."""
        self._must_repeat = True

    def look_ahead(self) -> tuple[int, int]:
        """Return how many run, and for how many steps more nothing need be looked up while none changes."""
        running = self._lanes.get(0)
        if running is None or len(self._lanes) > 1 or self._left or self._must_repeat:
            return 0, 0
        return len(running), CHECK_EVERY - 1 - self._diffs % CHECK_EVERY

    def skip_lent(self, steps: int) -> None:
        """Take so many of look_ahead's steps as told."""
        self._diffs += steps

    def diff(
        self,
        tokens: Mapping[Key, int],
        prefill: Collection[Key],
        lane: int = 0,
        joined: Collection[Key] | None = None,
        decode_tokens: int | None = None,
    ) -> Sequence[Entry]:
        """Return the entries for a step that gives each request of `tokens` its tokens.

        `prefill` names those whose tokens are prompt tokens. Where the scheduler knows both, nothing is
        looked up but what changed: `joined`, all in `tokens` that were not running before, and
        `decode_tokens`, the sum over those not in `prefill`, with no request scheduled for nothing.
        """
        self._diffs += 1
        if len(prefill) > _MANY:
            prefill = frozenset(prefill)  # each that joins is looked up in it
        running = self._lanes.get(lane)
        if (
            joined is None
            or running is None
            # As many tokens as requests are one each. Several for one, or a naming that cannot be right:
            or decode_tokens != len(tokens) - len(prefill)
            or len(self._lanes) > 1
            or self._must_repeat
            or not self._diffs % CHECK_EVERY
        ):
            return self._diff_all(tokens, prefill, lane, joined)
        if prefill or joined or len(tokens) != len(running):
            return self._diff_named(tokens, prefill, lane, joined)
        entries, self._left = self._left, []
        return entries

    def _diff_named(
        self, tokens: Mapping[Key, int], prefill: Collection[Key], lane: int, joined: Collection[Key]
    ) -> list[Entry]:
        places, running = self._places, self._lanes[lane]
        fresh = _list_named(tokens, prefill, joined, places)
        idle_count = len(running) + len(fresh) - len(tokens)
        idle = self._find_idle(tokens, running, idle_count) if idle_count else []
        if len(idle) != idle_count or not all(map(tokens.__contains__, prefill)):
            return self._diff_all(tokens, prefill, lane, None)
        entries, self._left = self._left, []
        for key in idle:
            slot, handle = places[key]
            entries.append((handle, slot, 0))
        self._take_slots(fresh, lane)
        for key in fresh:
            slot, handle = places[key]
            word = _JOINED_PREFILL if key in prefill else _JOINED_DECODE
            entries.append((handle, slot, word | tokens[key]))
        for key in prefill:
            if key not in fresh:
                slot, handle = places[key]
                entries.append((handle, slot, _PREFILL_BIT | tokens[key]))
        return entries

    def _diff_all(
        self, tokens: Mapping[Key, int], prefill: Collection[Key], lane: int, joined: Collection[Key] | None
    ) -> list[Entry]:
        places = self._places
        if self._lanes.keys() - {lane}:
            self.leave([key for key in tokens if key in places and places[key][0] >> LANE_SHIFT != lane])
        entries, self._left = self._left, []
        if self._must_repeat:
            self._must_repeat = False
            entries = [pack_member(Member.RESET, 0, 0, 0, prefill=False)]
            entries += [self._tell(Member.JOINED, key, tokens, prefill) for key in places]
            listed = [key for key in tokens if key not in places]
        else:
            running = self._lanes.get(lane, {})
            is_checked = not self._diffs % CHECK_EVERY
            fresh = _list_fresh(tokens, prefill, None if is_checked else joined, places, len(running))
            listed = _list_unpredicted(tokens, prefill, fresh)
            idle_count = len(running) + len(fresh) - len(tokens)
            if idle_count > 0:
                idle = self._find_idle(tokens, running, idle_count)
                entries += [self._tell(Member.TOKENS, key, tokens, prefill) for key in idle]
        fresh = dict.fromkeys(key for key in listed if key not in places)
        self._take_slots(fresh, lane)
        for key in listed:
            change = Member.JOINED if key in fresh else Member.TOKENS
            entries.append(self._tell(change, key, tokens, prefill))
        return entries

    def _tell(self, change: Member, key: Key, tokens: Mapping[Key, int], prefill: Collection[Key]) -> Entry:
        slot, handle = self._places[key]
        return pack_member(change, slot, handle, tokens.get(key, 0), prefill=key in prefill)

    def _find_idle(self, tokens: Mapping[Key, int], running: dict[Key, None], count: int) -> list[Key]:
        # Who had to wait often waits again; as many as are missing can be no others.
        idle = [key for key in self._idle if key in running and key not in tokens]
        if len(idle) != count:
            idle = [key for key in running if key not in tokens]
        self._idle = idle
        return idle

    def _take_slots(self, keys: Collection[Key], lane: int) -> None:
        running = self._lanes.setdefault(lane, {})
        free = self._free.setdefault(lane, [])
        if len(running) + len(keys) > SLOTS_PER_LANE:
            raise OverflowError(f"lane {lane} runs more than {SLOTS_PER_LANE} requests")
        for key in keys:
            handle = self._handle_of(key)
            slot = free.pop() if free else lane << LANE_SHIFT | len(running)
            self._places[key] = slot, handle
            running[key] = None


def _list_fresh(
    tokens: Mapping[Key, int],
    prefill: Collection[Key],
    joined: Collection[Key] | None,
    places: Mapping[Key, tuple[int, int]],
    running: int,
) -> Collection[Key]:
    if joined is not None:
        fresh = _list_named(tokens, prefill, joined, places)
        if len(tokens) <= running + len(fresh):
            return fresh
    # Not told, or told too few; now and then also to bound what a wrong `joined` can do.
    unknown = tokens.keys() - places.keys()
    return unknown if len(unknown) < 2 else [key for key in tokens if key in unknown]


def _list_named(
    tokens: Mapping[Key, int],
    prefill: Collection[Key],
    joined: Collection[Key],
    places: Mapping[Key, tuple[int, int]],
) -> dict[Key, None]:
    fresh: dict[Key, None] = {}
    for key in joined:
        if key not in places and key in tokens:
            fresh[key] = None
    for key in prefill:  # whoever joins has most often a prompt to compute: what was not named is found there
        if key not in places and key in tokens:
            fresh[key] = None
    return fresh


def _list_unpredicted(
    tokens: Mapping[Key, int], prefill: Collection[Key], fresh: Collection[Key]
) -> list[Key]:
    # Set operations and count() run in C; the loop over all is left to steps that need it
    # (speculative decoding: several tokens for requests that are not in prefill).
    told = dict.fromkeys(key for key in (*prefill, *fresh) if key in tokens)
    odd = sum(tokens[key] != 1 for key in told)
    if len(tokens) - list(tokens.values()).count(1) == odd:
        return [*told]
    return [key for key, count in tokens.items() if count != 1 or key in told]

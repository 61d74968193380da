# Which requests a step served, told as changes: scheduled tokens in, entries for STEP_MEMBERS out.
# The prediction both sides share: a request in the running set gets one decode token in each step of
# its lane; whatever differs is listed, so that nothing has to be assumed when tokens are summed up.
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Generic, TypeVar

from otel_llmprism.native.ring_records import Member, pack_member

LANE_SHIFT = 16  # a slot's lane is its upper half
SLOTS_PER_LANE = 1 << LANE_SHIFT
CHECK_EVERY = 64  # steps; a look at every request costs 5 us at batch 256

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
        self._must_repeat = True
        self._diffs = 0

    def leave(self, keys: Iterable[Key]) -> None:
        """Take finished, aborted or preempted requests out; told with the next step."""
        for key in keys:
            if key not in self._places:
                continue
            slot, handle = self._places.pop(key)
            lane = slot >> LANE_SHIFT
            del self._lanes[lane][key]
            self._free[lane].append(slot)
            self._left.append(pack_member(Member.LEFT, slot, handle, 0, prefill=False))

    def repeat_all(self) -> None:
        """Tell the whole running set with the next step: the ring dropped a record with changes."""
        self._must_repeat = True

    def diff(
        self,
        tokens: Mapping[Key, int],
        prefill: Collection[Key],
        lane: int = 0,
        joined: Collection[Key] | None = None,
    ) -> list[Entry]:
        """Return the entries for a step that gives each request of `tokens` its tokens.

        `prefill` names those whose tokens are prompt tokens; `joined`, where the scheduler knows it, all
        in `tokens` that were not running before, which spares looking up every request.
        """
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
            fresh = self._list_fresh(tokens, lane, joined)
            listed = self._list_unpredicted(tokens, prefill, fresh)
            if len(tokens) < len(self._lanes.get(lane, ())) + len(fresh):
                entries += [
                    self._tell(Member.TOKENS, key, tokens, prefill) for key in self._find_idle(tokens, lane)
                ]
        for key in listed:
            change = Member.TOKENS if key in places else Member.JOINED
            if change is Member.JOINED:
                self._take_slot(key, lane)
            entries.append(self._tell(change, key, tokens, prefill))
        return entries

    def _list_fresh(
        self, tokens: Mapping[Key, int], lane: int, joined: Collection[Key] | None
    ) -> Collection[Key]:
        self._diffs += 1
        if joined is not None and self._diffs % CHECK_EVERY:
            fresh = [key for key in joined if key not in self._places and key in tokens]
            if len(tokens) <= len(self._lanes.get(lane, ())) + len(fresh):
                return fresh
        # Not told, or told too few; now and then also to bound what a wrong `joined` can do.
        unknown = tokens.keys() - self._places.keys()
        return unknown if len(unknown) < 2 else [key for key in tokens if key in unknown]

    def _list_unpredicted(
        self, tokens: Mapping[Key, int], prefill: Collection[Key], fresh: Collection[Key]
    ) -> list[Key]:
        # Set operations and count() run in C; the loop over all is left to steps that need it
        # (speculative decoding: several tokens for requests that are not in prefill).
        told = dict.fromkeys(key for key in (*prefill, *fresh) if key in tokens)
        odd = sum(tokens[key] != 1 for key in told)
        if len(tokens) - list(tokens.values()).count(1) == odd:
            return [*told]
        return [key for key, count in tokens.items() if count != 1 or key in told]

    def _tell(self, change: Member, key: Key, tokens: Mapping[Key, int], prefill: Collection[Key]) -> Entry:
        slot, handle = self._places[key]
        return pack_member(change, slot, handle, tokens.get(key, 0), prefill=key in prefill)

    def _find_idle(self, tokens: Mapping[Key, int], lane: int) -> list[Key]:
        running = self._lanes.get(lane, {})
        if tokens.keys() >= running.keys():
            return []
        return [key for key in running if key not in tokens]

    def _take_slot(self, key: Key, lane: int) -> None:
        running = self._lanes.setdefault(lane, {})
        free = self._free.setdefault(lane, [])
        index = free.pop() if free else lane << LANE_SHIFT | len(running)
        if len(running) >= SLOTS_PER_LANE:
            raise OverflowError(f"lane {lane} runs more than {SLOTS_PER_LANE} requests")
        self._places[key] = (index, self._handle_of(key))
        running[key] = None

# The ring against a list with a bound: any order of writes, drains and reader restarts.
import tempfile
from collections import deque
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from otel_llmprism.native.ring import RingReader, RingWriter

SLOTS = 16


class RingModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._writer = RingWriter.create(Path(self._folder.name) / "a.ring", slots=SLOTS)
        self._reader = RingReader.open(self._writer.path)
        self._expected: deque[bytes] = deque()
        self._dropped = 0
        self._number = 0

    @rule(count=st.integers(1, SLOTS + 1))
    def put(self, count: int) -> None:
        slots = [(self._number * 64 + part).to_bytes(8, "little") * 16 for part in range(count)]
        self._number += 1
        fits = len(self._expected) + count <= SLOTS
        assert self._writer.put(b"".join(slots)) == fits
        if fits:
            self._expected.extend(slots)
        else:
            self._dropped += 1

    @rule(max_slots=st.integers(0, SLOTS + 4))
    def drain(self, max_slots: int) -> None:
        taken = self._reader.drain(max_slots)
        wanted = [self._expected.popleft() for _ in range(min(max_slots, len(self._expected)))]
        assert taken == b"".join(wanted)

    @rule()
    def restart_reader(self) -> None:
        self._reader.close()
        self._reader = RingReader.open(self._writer.path)

    @invariant()
    def counts_agree(self) -> None:
        assert self._reader.pending == len(self._expected)
        assert self._reader.dropped == self._dropped

    def teardown(self) -> None:
        self._writer.close()
        self._reader.close()
        self._folder.cleanup()


TestRingModel = RingModel.TestCase
TestRingModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

# Random append, read, settle, crash and reopen against a plain list: what is not settled comes again, in
# order and whole; what is settled comes again at most once more per crash.
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ingress_config import MIN_LOG_BYTES, LogConfig
from otel_llmprism.pipeline.log.errors import LogFullError
from otel_llmprism.pipeline.log.write_ahead_log import WriteAheadLog

if TYPE_CHECKING:
    from otel_llmprism.pipeline.log.segment import Segment

MAX_BYTES = MIN_LOG_BYTES
SIZES = st.one_of(st.integers(0, 300), st.sampled_from([60_000, 131_072, 300_000]))
SEGMENT_BYTES = st.sampled_from([1, 100, 1000, 200_000])


class LogModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="log-model-"))
        self.counters = Counters()
        self.log = self.build_log(100)
        self.unsettled: list[bytes] = []  # in order of acceptance
        self.maybe_again: set[bytes] = set()  # settled, but the acknowledgement may have been lost
        self.to_come: list[bytes] = []  # accepted and not read yet in this run
        self.in_hand: list[tuple[Segment, int, bytes]] = []
        self.is_caught_up = False
        self.number = 0

    def build_log(self, segment_bytes: int) -> WriteAheadLog:
        return WriteAheadLog(
            LogConfig(self.folder / "log", max_bytes=MAX_BYTES, segment_bytes=segment_bytes), self.counters
        )

    @initialize(segment_bytes=SEGMENT_BYTES)
    def open_first(self, segment_bytes: int) -> None:
        self.log = self.build_log(segment_bytes)
        self.log.open()

    @rule(sizes=st.lists(SIZES, min_size=1, max_size=8), are_queued=st.booleans())
    def append(self, sizes: list[int], *, are_queued: bool) -> None:
        for size in sizes:
            self.append_one(size, is_queued=are_queued)

    def append_one(self, size: int, *, is_queued: bool) -> None:
        self.number += 1
        payload = b"%06d" % self.number + bytes(size)
        try:
            position = self.log.append(1, payload)
        except LogFullError:
            assert self.log.measure() + len(payload) + 300 > MAX_BYTES
            return
        self.unsettled.append(payload)
        if self.is_caught_up and is_queued:  # as the ingress does while its queue has room
            self.in_hand.append((position.segment, position.sequence, payload))
            return
        if self.is_caught_up:
            self.log.read_from(position)
            self.is_caught_up = False
        self.to_come.append(payload)

    @rule(count=st.integers(1, 10))
    def read(self, count: int) -> None:
        if self.is_caught_up:
            return
        for _ in range(count):
            record = self.log.read_next(is_last=not self.to_come)
            while record is not None and record.payload in self.maybe_again:
                self.log.free(record.segment, record.sequence)
                record = self.log.read_next(is_last=not self.to_come)
            assert (record.payload if record else None) == (self.to_come.pop(0) if self.to_come else None)
            if record is None:
                self.is_caught_up = True
                return
            self.in_hand.append((record.segment, record.sequence, record.payload))

    @precondition(lambda self: self.in_hand)
    @rule(choices=st.lists(st.integers(0, 1 << 16), min_size=1, max_size=8))
    def settle(self, choices: list[int]) -> None:
        for choice in choices[: len(self.in_hand)]:
            segment, sequence, payload = self.in_hand.pop(choice % len(self.in_hand))
            self.log.free(segment, sequence)
            self.unsettled.remove(payload)

    @rule(segment_bytes=SEGMENT_BYTES)
    def close_and_open(self, segment_bytes: int) -> None:
        self.log.close()
        self.reopen(segment_bytes)

    @rule(
        torn=st.binary(max_size=200),
        lost_acks=st.integers(0, 30),
        segment_bytes=SEGMENT_BYTES,
    )
    def crash_and_reopen(self, torn: bytes, lost_acks: int, segment_bytes: int) -> None:
        """Go on from the files as they lie: no seal, perhaps half a record, perhaps without the last acks."""
        crashed = self.folder / "crashed"
        shutil.copytree(self.folder / "log", crashed)
        self.log.close()
        shutil.rmtree(self.folder / "log")
        crashed.rename(self.folder / "log")
        segments = sorted((self.folder / "log").glob("*.wal"))
        if segments:
            with segments[-1].open("ab") as newest:
                newest.write(torn)
        for acks in (self.folder / "log").glob("*.ack"):
            raw = acks.read_bytes()
            acks.write_bytes(raw[: max(0, len(raw) - lost_acks)])
        self.reopen(segment_bytes, lost_acks=lost_acks // 8 + 1 if lost_acks else 0)

    def reopen(self, segment_bytes: int, lost_acks: int = 0) -> None:
        self.log = self.build_log(segment_bytes)
        self.log.open()
        self.in_hand.clear()
        self.is_caught_up = False
        self.to_come = list(self.unsettled)
        if lost_acks:
            self.learn_duplicates(lost_acks)

    def learn_duplicates(self, lost_acks: int) -> None:
        """See which settled ones come again by a reading that frees nothing, as another crash would."""
        seen: list[bytes] = []
        while (record := self.log.read_next()) is not None:
            seen.append(record.payload)
        self.log.close()
        self.log.open()
        ack_files = len(list((self.folder / "log").glob("*.ack")))
        again = set(seen) - set(self.unsettled)
        assert [payload for payload in seen if payload not in again] == self.unsettled
        assert len(seen) == len(set(seen)), "nothing comes twice in one run"
        assert len(again - self.maybe_again) <= lost_acks * ack_files
        self.maybe_again |= again

    @invariant()
    def stays_within_its_bound(self) -> None:
        on_disk = sum(path.stat().st_size for path in (self.folder / "log").glob("0*"))
        assert on_disk <= MAX_BYTES + 2000
        assert self.counters.value("llmprism.lost", stage="log", cause="unknown_signal") == 0

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


LogModel.TestCase.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, derandomize=True
)
TestLogModel = LogModel.TestCase

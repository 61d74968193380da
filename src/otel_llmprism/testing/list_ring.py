# A ring that keeps every record, slot by slot, and gives them back as rows by kind; for tests of recorders.
from typing import Any

import numpy as np

from otel_llmprism.native.ring_layout import SLOT_BYTES
from otel_llmprism.native.ring_records import Kind, RequestEvent
from otel_llmprism.receivers.ring_slots import DTYPES


class ListRing:
    """Takes what a RingWriter takes."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def put(self, record: bytes, /) -> bool:
        self.records += [record[at : at + SLOT_BYTES] for at in range(0, len(record), SLOT_BYTES)]
        return True

    def add_hook_time(self, _duration_ns: int, /) -> None:
        pass

    def close(self) -> None:
        pass

    def list_kinds(self) -> list[Kind]:
        return [Kind(int.from_bytes(record[:2], "little")) for record in self.records]

    def read(self, kind: Kind) -> list[Any]:
        """Return the rows of one kind, in the order in which they were put."""
        kinds = zip(self.list_kinds(), self.records, strict=True)
        return [np.frombuffer(record, DTYPES[kind])[0] for found, record in kinds if found is kind]

    def list_events(self) -> list[tuple[RequestEvent, int, int]]:
        """Return what happened to requests: event, step, tokens."""
        rows = self.read(Kind.REQUEST_EVENT)
        return [(RequestEvent(row["event"]), int(row["step"]), int(row["tokens"])) for row in rows]

# A device for tests of timing: it has done what was recorded up to `done`, and nothing else is known of it.
from typing import Any

from otel_llmprism.instrumentation.device_time import MakeEvent


class FakeDevice:
    """A device that has done what was recorded up to `done`; an event is one millisecond after the last."""

    def __init__(self) -> None:
        self.recorded = 0
        self.done = 0
        self.made = 0
        self.is_there = True
        self.fails = False

    def find_maker(self) -> MakeEvent | None:
        return self.make if self.is_there else None

    def make(self) -> "FakeEvent":
        self.made += 1
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self.at = -1

    def record(self) -> None:
        self._device.recorded += 1
        self.at = self._device.recorded

    def query(self) -> bool:
        if self._device.fails:
            raise RuntimeError("an illegal memory access was encountered")
        return self.at <= self._device.done

    def elapsed_time(self, end: Any, /) -> float:
        return float(end.at - self.at)

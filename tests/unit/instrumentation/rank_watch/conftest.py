from collections.abc import Iterator

import pytest

from otel_llmprism.instrumentation.collective_window import CollectiveWindow
from otel_llmprism.instrumentation.device_time import DevicePairs
from otel_llmprism.instrumentation.rank_records import RankPlace, RankRecorder
from otel_llmprism.instrumentation.rank_watch import RankWatch
from otel_llmprism.testing.fake_device import FakeDevice
from otel_llmprism.testing.list_ring import ListRing


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


@pytest.fixture
def ring() -> ListRing:
    return ListRing()


@pytest.fixture
def window(device: FakeDevice) -> CollectiveWindow:
    return CollectiveWindow(DevicePairs(device.find_maker))


@pytest.fixture
def watch(device: FakeDevice, ring: ListRing, window: CollectiveWindow) -> Iterator[RankWatch]:
    recorder = RankRecorder(ring, RankPlace(3))
    watch = RankWatch(recorder, DevicePairs(device.find_maker), window, every=2)
    yield watch
    watch.close()

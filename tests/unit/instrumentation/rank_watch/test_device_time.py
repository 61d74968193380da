import sys
from types import SimpleNamespace

import pytest

from otel_llmprism.instrumentation.device_time import DevicePairs, find_event_maker
from otel_llmprism.testing.fake_device import FakeDevice

MS_NS = 1_000_000


def test_pairs_tell_a_stretch_when_the_device_is_done_and_not_before(device: FakeDevice) -> None:
    pairs: DevicePairs[int] = DevicePairs(device.find_maker)
    pairs.start(5)
    assert pairs.stop()
    assert pairs.poll() == []
    device.done = 2
    assert pairs.poll() == [(5, MS_NS)]
    assert pairs.poll() == []


def test_pairs_use_their_events_again(device: FakeDevice) -> None:
    pairs: DevicePairs[int] = DevicePairs(device.find_maker)
    for step in range(10):
        pairs.start(step)
        pairs.stop()
        device.done = device.recorded
        assert pairs.poll() == [(step, MS_NS)]
    assert device.made == 2


def test_pairs_drop_the_oldest_beyond_their_bound(device: FakeDevice) -> None:
    pairs: DevicePairs[int] = DevicePairs(device.find_maker, max_in_flight=2)
    for step in range(5):
        pairs.start(step)
        pairs.stop()
    device.done = device.recorded
    assert [step for step, _ in pairs.poll()] == [3, 4]
    assert pairs.dropped == 3


def test_pairs_do_nothing_without_a_device_or_while_a_graph_is_captured(device: FakeDevice) -> None:
    pairs: DevicePairs[int] = DevicePairs(device.find_maker)
    pairs.start(0)
    device.is_there = False
    assert not pairs.stop()
    pairs.start(1)
    assert not pairs.stop()
    device.is_there = True
    pairs.start(2)
    assert pairs.stop()
    device.done = device.recorded
    device.is_there = False
    assert pairs.poll() == []
    device.is_there = True
    assert [step for step, _ in pairs.poll()] == [2]


def test_a_device_in_trouble_ends_the_timing_and_raises_nothing(device: FakeDevice) -> None:
    pairs: DevicePairs[int] = DevicePairs(device.find_maker)
    pairs.start(0)
    pairs.stop()
    device.fails = True
    assert pairs.poll() == []
    assert pairs.dropped == 1
    pairs.start(1)
    assert not pairs.stop()


@pytest.mark.parametrize(
    ("is_initialized", "is_capturing", "is_found"),
    [(True, False, True), (False, False, False), (True, True, False)],
)
def test_events_come_from_a_device_that_is_in_use_and_captures_no_graph(
    monkeypatch: pytest.MonkeyPatch, is_initialized: bool, is_capturing: bool, is_found: bool
) -> None:
    def is_current_stream_capturing() -> bool:
        assert is_initialized, "asking would initialise the device"
        return is_capturing

    cuda = SimpleNamespace(
        is_initialized=lambda: is_initialized, is_current_stream_capturing=is_current_stream_capturing
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert (find_event_maker() is not None) is is_found

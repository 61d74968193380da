import pytest

from otel_llmprism.native.ring_records import HookOff, pack_hook_off
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler
from otel_llmprism.service.exporter_process.hook_notes import tell_hooks_off


@pytest.mark.parametrize(
    ("reason", "text"), [(HookOff.BUDGET, "up to 2500 us"), (HookOff.FAILED, "failed"), (99, "no reason")]
)
def test_a_hook_that_went_off_is_named_with_why(
    caplog: pytest.LogCaptureFixture, reason: int, text: str
) -> None:
    record = pack_hook_off("step", 1, 2_500_000, 1_000_000, reason)
    tell_hooks_off(RingAssembler(Counters()).consume(record))
    (told,) = caplog.messages
    assert "'step' switched itself off" in told
    assert text in told

# What guards the reading of a framework's objects: errors end there, and only failures in a row count.
import time

import pytest

from otel_llmprism.instrumentation import process_run
from otel_llmprism.instrumentation.guard import FORGET_FAILURES_NS, MAX_FAILURES
from otel_llmprism.instrumentation.quiet import quiet


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_run, "_absent", {})
    monkeypatch.setattr(process_run, "_failing", set())


def test_failures_far_apart_never_switch_a_hook_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_ns = FORGET_FAILURES_NS
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    calls = 0

    @quiet("engine", "fallback")
    def fail() -> str:
        nonlocal calls
        calls += 1
        raise ValueError("what a user wrote")

    for _ in range(3 * MAX_FAILURES):
        assert fail() == "fallback"
        now_ns += FORGET_FAILURES_NS
    assert calls == 3 * MAX_FAILURES
    assert len(caplog.records) == 1
    assert "what a user wrote" not in caplog.text


def test_failures_in_a_row_switch_it_off() -> None:
    calls = 0

    @quiet("engine", None)
    def fail() -> None:
        nonlocal calls
        calls += 1
        raise ValueError

    for _ in range(3 * MAX_FAILURES):
        fail()
    assert calls == MAX_FAILURES
    assert process_run.list_absent_hooks() == ["engine.fail"]

# torch's profilers, as fakes of the same shape: what is known of them, and that they notice nothing.
import gc
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from otel_llmprism.instrumentation import profiler_state as state
from otel_llmprism.instrumentation.frameworks import profilers
from otel_llmprism.instrumentation.profiler_state import profiler_state

SOURCE = """
class profile:
    def __init__(self, fails=None):
        self.fails, self.seen = fails, []
    def _do(self, what):
        self.seen.append(what)
        if self.fails is not None:
            raise self.fails
        return what
    def start(self): return self._do("start")
    def stop(self): return self._do("stop")
    def __enter__(self): self._do("enter"); return self
    def __exit__(self, *details): self._do("exit"); return details[0] is ValueError
"""


@pytest.fixture
def torch_profile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the class `profile`, hooked under both of torch's names."""
    monkeypatch.setattr(state, "_started", 0)
    kineto, autograd = ModuleType("torch.profiler.profiler"), ModuleType("torch.autograd.profiler")
    for module in (kineto, autograd):
        exec(SOURCE, vars(module))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    profilers.install()
    kineto.autograd = autograd.profile  # type: ignore[attr-defined]
    yield kineto
    profilers.remove()


def test_a_running_profiler_is_known_until_it_stops(torch_profile: Any) -> None:
    profiler = torch_profile.profile()
    assert not profiler_state().is_running
    assert profiler.start() == "start"
    assert (profiler_state().running, profiler_state().started) == (1, 1)
    with torch_profile.autograd():
        assert profiler_state().running == 2
    assert profiler.stop() == "stop"
    assert (profiler_state().running, profiler_state().started) == (0, 2)


def test_starting_twice_counts_once_and_stopping_twice_harms_nothing(torch_profile: Any) -> None:
    profiler = torch_profile.profile()
    profiler.start()
    profiler.start()
    assert profiler_state().running == 1
    profiler.stop()
    profiler.stop()
    assert (profiler_state().running, profiler_state().started) == (0, 1)


def test_a_profiler_that_fails_to_start_or_to_stop_raises_as_it_would_and_is_over(torch_profile: Any) -> None:
    trouble = KeyboardInterrupt()
    profiler = torch_profile.profile(fails=trouble)
    for call in (profiler.start, profiler.stop):
        with pytest.raises(KeyboardInterrupt) as caught:
            call()
        assert caught.value is trouble
        assert not profiler_state().is_running


def test_what_the_context_manager_says_of_an_exception_is_kept(torch_profile: Any) -> None:
    def fail_inside(error: Exception) -> None:
        with torch_profile.autograd():
            raise error

    fail_inside(ValueError())  # this one it swallows
    with pytest.raises(KeyError):
        fail_inside(KeyError())
    assert not profiler_state().is_running


def test_a_profiler_that_nobody_stopped_is_forgotten_with_it(torch_profile: Any) -> None:
    torch_profile.profile().start()
    gc.collect()
    assert not profiler_state().is_running


def test_our_own_trouble_is_not_the_profilers(torch_profile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_running", None)
    assert torch_profile.profile().start() == "start"
    monkeypatch.undo()

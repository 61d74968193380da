import pytest

from otel_llmprism.instrumentation.frameworks import vllm
from otel_llmprism.instrumentation.hooking import Target, Wrap


@pytest.mark.parametrize(("target", "wrap"), vllm.HOOKS, ids=lambda value: getattr(value, "path", ""))
def test_every_target_has_a_wrapper_that_keeps_the_originals_name(target: Target, wrap: Wrap) -> None:
    def original() -> None:
        """Theirs."""

    wrapper = wrap(original)
    assert wrapper is not original
    assert (wrapper.__name__, wrapper.__doc__) == ("original", "Theirs.")


def test_no_place_is_listed_twice() -> None:
    names = [target.name for target, _ in vllm.HOOKS]
    assert len(names) == len(set(names))

# Wrappers round somebody else's callables: in place once, tolerant, removable.
import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from otel_llmprism.instrumentation import process_run
from otel_llmprism.instrumentation.hooking import Target, install_hooks, remove_hooks


class Owner:
    def add(self, first: int, second: int = 2) -> int:
        return first + second

    @staticmethod
    def name() -> str:
        return "owner"


class Heir(Owner):
    pass


@pytest.fixture
def framework(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    module = ModuleType("fake_framework")
    module.Owner = type("Owner", (Owner,), dict(vars(Owner)))  # type: ignore[attr-defined]
    module.Heir = type("Heir", (module.Owner,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_framework", module)
    monkeypatch.setattr(process_run, "_absent", {})
    yield module
    remove_hooks("fake")


def add_ten(original: Callable[..., int]) -> Callable[..., int]:
    def wrapper(*args: Any, **kwargs: Any) -> int:
        return original(*args, **kwargs) + 10

    return wrapper


def test_a_wrapper_is_put_in_place_once(framework: ModuleType) -> None:
    hooks = [(Target("fake_framework", "Owner.add", ("first",)), add_ten)]
    install_hooks("fake", hooks)
    install_hooks("fake", hooks)
    assert framework.Owner().add(1) == 13


def test_what_somebody_wrapped_again_is_not_wrapped_twice(framework: ModuleType) -> None:
    hooks = [(Target("fake_framework", "Owner.add", ("first",)), add_ten)]
    install_hooks("fake", hooks)
    ours = framework.Owner.add

    def add(self: Any, first: int) -> int:
        return int(ours(self, first))

    framework.Owner.add = add
    install_hooks("fake", hooks)
    assert framework.Owner().add(1) == 13


def test_removal_puts_back_what_was_there(framework: ModuleType) -> None:
    before = vars(framework.Owner)["add"]
    install_hooks("fake", [(Target("fake_framework", "Owner.add"), add_ten)])
    remove_hooks("fake")
    assert vars(framework.Owner)["add"] is before


def test_removal_leaves_the_wrapper_of_somebody_else_alone(framework: ModuleType) -> None:
    install_hooks("fake", [(Target("fake_framework", "Owner.add"), add_ten)])
    ours = framework.Owner.add

    @functools.wraps(ours)  # copies all that we have written on ours
    def add(self: Any, first: int) -> int:
        return int(ours(self, first)) + 100

    framework.Owner.add = add
    remove_hooks("fake")
    assert framework.Owner.add is add
    assert framework.Owner().add(1) == 113


def test_an_inherited_callable_is_wrapped_for_the_heir_alone(framework: ModuleType) -> None:
    install_hooks("fake", [(Target("fake_framework", "Heir.add"), add_ten)])
    assert (framework.Heir().add(1), framework.Owner().add(1)) == (13, 3)
    remove_hooks("fake")
    assert "add" not in vars(framework.Heir)


def test_a_static_method_stays_static(framework: ModuleType) -> None:
    install_hooks(
        "fake", [(Target("fake_framework", "Owner.name"), lambda original: lambda: original() + "!")]
    )
    assert framework.Owner.name() == framework.Owner().name() == "owner!"


@pytest.mark.parametrize(
    "target",
    [Target("fake_framework", "Owner.gone"), Target("fake_framework", "Gone.add")],
)
def test_a_missing_target_turns_only_its_hook_off_and_is_said_once(
    framework: ModuleType, caplog: pytest.LogCaptureFixture, target: Target
) -> None:
    hooks = [(target, add_ten), (Target("fake_framework", "Owner.add"), add_ten)]
    install_hooks("fake", hooks)
    install_hooks("fake", hooks)
    assert framework.Owner().add(1) == 13
    assert [target.name in record.getMessage() for record in caplog.records] == [True]


def test_a_changed_signature_turns_the_hook_off(
    framework: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    install_hooks("fake", [(Target("fake_framework", "Owner.add", ("second",)), add_ten)])
    assert framework.Owner().add(1) == 3
    assert "takes (first, second), not (second, ...)" in caplog.text


def test_an_optional_target_may_be_missing_without_a_word(
    framework: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    install_hooks("fake", [(Target("fake_framework", "Owner.gone", is_optional=True), add_ten)])
    assert not caplog.records


def test_a_module_that_comes_later_is_hooked_when_it_comes(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_framework.py").write_text("def answer():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    install_hooks("late", [(Target("late_framework", "answer"), add_ten)])
    import late_framework  # type: ignore[import-not-found]  # noqa: PLC0415

    assert late_framework.answer() == 11
    remove_hooks("late")
    assert late_framework.answer() == 1
    del sys.modules["late_framework"]


def test_a_wrapper_that_cannot_be_built_leaves_the_import_alone(framework: ModuleType) -> None:
    def fail(_original: object) -> object:
        raise RuntimeError("no")

    install_hooks("fake", [(Target("fake_framework", "Owner.add"), fail)])
    assert framework.Owner().add(1) == 3

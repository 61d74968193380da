# A stand-in for torch with the places that we hook, as torch itself puts them together; nothing is computed.
import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any


class Module:
    """A model of several parts, each told its mode."""

    def __init__(self, parts: int = 0) -> None:
        self.parts = [Module() for _ in range(parts)]
        self.training = True

    def train(self, mode: bool = True) -> "Module":
        self.training = mode
        for part in self.parts:
            part.train(mode)
        return self

    def eval(self) -> "Module":
        return self.train(False)


class Optimizer:
    """The base that wraps each subclass's `step` once."""

    def __init__(self) -> None:
        step: Any = type(self).step
        if not hasattr(step, "hooked"):
            wrapped: Any = self.profile_hook_step(step)
            wrapped.hooked = True
            type(self).step = wrapped  # type: ignore[method-assign]

    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            return func(*args, **kwargs)

        return call

    def step(self) -> str:
        return "stepped"


class GradScaler:
    """Steps an optimizer unless the gradients overflowed."""

    def __init__(self) -> None:
        self.has_overflowed = False

    def step(self, optimizer: Optimizer) -> str | None:
        return None if self.has_overflowed else optimizer.step()


class _BaseDataLoaderIter:
    def __init__(self, batches: int) -> None:
        self._left = batches

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if not self._left:
            raise StopIteration
        self._left -= 1
        return self._left


def build_torch() -> ModuleType:
    """Return a module `torch` whose parts hang below it."""
    torch: Any = ModuleType("torch")
    torch.__version__ = "2.13.0"
    torch.is_traced = False
    torch.backward_error = None

    def backward(tensors: Any, grad_tensors: Any = None) -> None:
        del tensors, grad_tensors
        if torch.backward_error is not None:
            raise torch.backward_error

    def save(obj: Any, f: Any) -> None:
        del obj, f

    def is_compiling() -> bool:
        return bool(torch.is_traced)

    for name in ("optim", "autograd", "nn", "amp", "amp.grad_scaler", "utils", "utils.data", "compiler"):
        _hang(torch, name)
    _hang(torch, "utils.data.dataloader")
    torch.optim.Optimizer = type("Optimizer", Optimizer.__bases__, dict(vars(Optimizer)))
    torch.nn.Module = type("Module", Module.__bases__, dict(vars(Module)))
    torch.amp.grad_scaler.GradScaler = type("GradScaler", (), dict(vars(GradScaler)))
    iterator = type("_BaseDataLoaderIter", (), dict(vars(_BaseDataLoaderIter)))
    setattr(torch.utils.data.dataloader, "_BaseDataLoaderIter", iterator)  # noqa: B010  private there
    torch.autograd.backward, torch.save, torch.compiler.is_compiling = backward, save, is_compiling
    return torch  # type: ignore[no-any-return]


def _hang(root: Any, path: str) -> None:
    *owners, name = path.split(".")
    owner = root
    for one in owners:
        owner = getattr(owner, one)
    setattr(owner, name, ModuleType(f"torch.{path}"))

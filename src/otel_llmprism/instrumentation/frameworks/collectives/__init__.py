# Hooks into collectives: torch.distributed and the group coordinators of vLLM and SGLang. They record only
# while a sampled step's window is open (RankWatch); otherwise a call costs a look at it. The outermost wrap
# alone records, since coordinators call torch.distributed, or what lies below it, themselves.
import functools
import sys
from collections.abc import Callable
from typing import Any

from otel_llmprism.instrumentation.collective_window import WINDOW, CollectiveWindow, ReadCall
from otel_llmprism.instrumentation.frameworks.collectives.calls import (
    CoordinatorCall,
    TorchCall,
    read_batch,
)
from otel_llmprism.instrumentation.hooking import Target, Wrap, install_hooks, remove_hooks
from otel_llmprism.native.ring_records import CollectiveOp as Op

__all__ = ["HOOKS", "WINDOW", "CollectiveWindow", "install", "remove"]

_TORCH = "torch.distributed.distributed_c10d"
_VLLM = "vllm.distributed.parallel_state"
_SGLANG = "sglang.srt.distributed.parallel_state"
_ORIGINAL = "_llmprism_original"

# isend and irecv stay as they are: torch compares them by identity with those that users imported.
TORCH_CALLS = (
    TorchCall("all_reduce", Op.ALL_REDUCE, ("tensor", "op", "group", "async_op"), "tensor"),
    TorchCall(
        "all_gather_into_tensor",
        Op.ALL_GATHER,
        ("output_tensor", "input_tensor", "group", "async_op"),
        "input_tensor",
    ),
    TorchCall("all_gather", Op.ALL_GATHER, ("tensor_list", "tensor", "group", "async_op"), "tensor"),
    TorchCall(
        "reduce_scatter_tensor",
        Op.REDUCE_SCATTER,
        ("output", "input", "op", "group", "async_op"),
        "input",
    ),
    TorchCall(
        "all_to_all_single",
        Op.ALL_TO_ALL,
        ("output", "input", "output_split_sizes", "input_split_sizes", "group", "async_op"),
        "input",
    ),
    TorchCall("broadcast", Op.BROADCAST, ("tensor", "src", "group", "async_op"), "tensor"),
    TorchCall("gather", Op.GATHER, ("tensor", "gather_list", "dst", "group", "async_op"), "tensor"),
    TorchCall("send", Op.SEND, ("tensor", "dst", "group", "tag"), "tensor", peer="dst"),
    TorchCall("recv", Op.RECV, ("tensor", "src", "group", "tag"), "tensor", peer="src"),
    TorchCall("barrier", Op.BARRIER, ("group", "async_op")),
)
_SHARED_CALLS = (
    CoordinatorCall("all_gatherv", Op.ALL_GATHER, ("input_",), "input_"),
    CoordinatorCall("reduce_scatterv", Op.REDUCE_SCATTER, ("input_",), "input_"),
    CoordinatorCall("gather", Op.GATHER, ("input_", "dst"), "input_"),
    CoordinatorCall("broadcast", Op.BROADCAST, ("input_", "src"), "input_"),
    CoordinatorCall("send", Op.SEND, ("tensor", "dst"), "tensor"),
    CoordinatorCall("recv", Op.RECV, ("size", "dtype", "src")),
    CoordinatorCall("barrier", Op.BARRIER, ()),
)
# vLLM: below its custom operators, so that compiled models are seen as well.
VLLM_CALLS = (
    CoordinatorCall("_all_reduce_out_place", Op.ALL_REDUCE, ("input_",), "input_"),
    CoordinatorCall("_all_gather_out_place", Op.ALL_GATHER, ("input_", "dim"), "input_"),
    CoordinatorCall("_reduce_scatter_out_place", Op.REDUCE_SCATTER, ("input_", "dim"), "input_"),
    *_SHARED_CALLS,
)
# SGLang: what the model calls, and what its custom operators call when the model is compiled.
SGLANG_CALLS = (
    CoordinatorCall("all_reduce", Op.ALL_REDUCE, ("input_",), "input_"),
    CoordinatorCall("_all_reduce_out_place", Op.ALL_REDUCE, ("input_",), "input_"),
    CoordinatorCall("_all_reduce_in_place", Op.ALL_REDUCE, ("input_",), "input_"),
    CoordinatorCall("_all_gather_into_tensor", Op.ALL_GATHER, ("output", "input"), "input"),
    CoordinatorCall("_reduce_scatter_tensor", Op.REDUCE_SCATTER, ("output", "input"), "input"),
    *_SHARED_CALLS,
)


def wrap_collective(read: ReadCall) -> Wrap:
    """Return what wraps a callable whose calls `read` understands."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        torch = sys.modules["torch"]
        window = WINDOW

        @functools.wraps(original)
        def collective(*args: Any, **kwargs: Any) -> Any:
            # Compiling comes first: a look at the window would become a guard, and each sampled step a
            # recompilation.
            if torch.compiler.is_compiling() or window.recorder is None:
                return original(*args, **kwargs)
            return window.watch_call(read, original, args, kwargs)

        return collective

    return wrap


def wrap_torch_function(name: str, read: ReadCall) -> Wrap:
    """As wrap_collective, for a function whose name torch.distributed binds again."""
    wrap = wrap_collective(read)

    def wrap_both(original: Callable[..., Any]) -> Callable[..., Any]:
        wrapper: Callable[..., Any] = wrap(original)
        public = sys.modules["torch.distributed"]  # half imported, or there since long
        if getattr(public, name, None) is original:
            setattr(public, name, wrapper)
        _wrap_wait(sys.modules[_TORCH].Work)
        return wrapper

    return wrap_both


HOOKS: tuple[tuple[Target, Wrap], ...] = (
    *(
        (Target(_TORCH, call.name, call.parameters), wrap_torch_function(call.name, call.read))
        for call in TORCH_CALLS
    ),
    (
        Target(_TORCH, "batch_isend_irecv", ("p2p_op_list",)),
        wrap_torch_function("batch_isend_irecv", read_batch),
    ),
    *(
        (Target(module, f"GroupCoordinator.{call.name}", call.parameters), wrap_collective(call.read))
        for module, calls in ((_VLLM, VLLM_CALLS), (_SGLANG, SGLANG_CALLS))
        for call in calls
    ),
)


def install() -> None:
    """Wait for torch.distributed, vLLM and SGLang, and hook their collectives."""
    install_hooks("collectives", HOOKS)


def remove() -> None:
    """Put back what was there."""
    remove_hooks("collectives")
    public, core = sys.modules.get("torch.distributed"), sys.modules.get(_TORCH)
    if public is None or core is None:
        return
    for owner, name in (*((public, target.path) for target, _ in HOOKS), (core.Work, "wait")):
        wrapper = vars(owner).get(name)
        original = getattr(wrapper, _ORIGINAL, None)
        # What somebody put round ours has our mark too, by functools.wraps, but wraps another.
        if original is not None and getattr(wrapper, "__wrapped__", None) is original:
            setattr(owner, name, original)


def _wrap_wait(work: Any) -> None:
    """Wrap Work.wait, a method of C++ that no Target can describe."""
    original = vars(work)["wait"]  # as the class has it: what `work.wait` gives would not bind again
    if hasattr(original, _ORIGINAL):
        return
    torch, window = sys.modules["torch"], WINDOW

    @functools.wraps(original)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or window.recorder is None:
            return original(self, *args, **kwargs)
        return window.watch_wait(original, self, args, kwargs)

    setattr(wait, _ORIGINAL, original)
    work.wait = wait

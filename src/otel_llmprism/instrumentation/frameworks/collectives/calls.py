# What a call of a collective says of itself: torch.distributed's functions and the group coordinators of vLLM
# and SGLang. Arguments in, operation, group and bytes out. Reads shapes and types, never a tensor's values.
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from otel_llmprism.instrumentation.collective_window import Collective
from otel_llmprism.native.ring_records import CollectiveOp, derive_group_hash

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TorchCall:
    """Where a function of torch.distributed takes what we read; an index of -1: it has no such argument."""

    name: str
    op: CollectiveOp
    parameters: tuple[str, ...]
    tensor: str = ""  # the tensor, or list of them, that this rank gives
    peer: str = ""

    def read(self, args: Args, kwargs: Kwargs) -> Collective | None:
        """Say what the call will do; None when this process has no part in it."""
        given = dict(zip(self.parameters, args, strict=False)) | kwargs
        distributed = sys.modules["torch.distributed"]
        group = given.get("group") or distributed.group.WORLD
        ranks = distributed.get_process_group_ranks(group)
        size, is_on_device = _measure(given[self.tensor]) if self.tensor else (0, False)
        return Collective(
            self.op,
            self._derive_group(distributed, group.group_name, ranks, given),
            size,
            is_on_device,
            bool(given.get("async_op")),
        )

    def _derive_group(self, distributed: Any, name: str, ranks: Sequence[int], given: Kwargs) -> int:
        peer = given.get(self.peer) if self.peer else None
        if peer is None and given.get(f"group_{self.peer}") is not None:
            peer = ranks[given[f"group_{self.peer}"]]
        if peer is None:
            return derive_group_hash(name, ranks)
        me = distributed.get_rank()
        return _derive_pair(name, me, peer) if self.op is CollectiveOp.SEND else _derive_pair(name, peer, me)


def read_batch(args: Args, kwargs: Kwargs) -> Collective | None:
    """Say what batch_isend_irecv will do: all its sends and receives as one."""
    operations = args[0] if args else kwargs["p2p_op_list"]
    distributed = sys.modules["torch.distributed"]
    group = operations[0].group or distributed.group.WORLD
    ranks = distributed.get_process_group_ranks(group)
    is_receiving = any("recv" in operation.op.__name__ for operation in operations)
    size, is_on_device = _measure([operation.tensor for operation in operations])
    return Collective(
        CollectiveOp.RECV if is_receiving else CollectiveOp.SEND,
        derive_group_hash(f"{group.group_name} batch", ranks),
        size,
        is_on_device,
        is_async=True,
    )


@dataclass(frozen=True, slots=True)
class CoordinatorCall:
    """A method of a GroupCoordinator, which knows its own name and ranks."""

    name: str
    op: CollectiveOp
    parameters: tuple[str, ...]
    tensor: str = ""

    def read(self, args: Args, kwargs: Kwargs) -> Collective | None:
        """Say what the call will do; None for a group of one."""
        coordinator = args[0]
        ranks = coordinator.ranks
        if len(ranks) < 2:
            return None
        given = dict(zip(self.parameters, args[1:], strict=False)) | kwargs
        if self.op is CollectiveOp.RECV:
            size, is_on_device = _measure_received(given, coordinator)
        else:
            size, is_on_device = _measure(given[self.tensor]) if self.tensor else (0, False)
        return Collective(self.op, self._derive_group(coordinator, ranks, given), size, is_on_device)

    def _derive_group(self, coordinator: Any, ranks: Sequence[int], given: Kwargs) -> int:
        own = coordinator.rank_in_group
        if self.op is CollectiveOp.SEND:
            peer = given.get("dst")
            return _derive_pair(
                coordinator.unique_name, ranks[own], ranks[(own + 1) % len(ranks) if peer is None else peer]
            )
        if self.op is CollectiveOp.RECV:
            peer = given.get("src")
            return _derive_pair(
                coordinator.unique_name, ranks[(own - 1) % len(ranks) if peer is None else peer], ranks[own]
            )
        return derive_group_hash(coordinator.unique_name, ranks)


def _derive_pair(name: str, source: int, destination: int) -> int:
    """Return the number of one direction between two ranks: others of the group do not count its calls."""
    return derive_group_hash(f"{name} to", (source, destination))


def _measure(tensors: Any) -> tuple[int, bool]:
    each = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
    size = sum(tensor.numel() * tensor.element_size() for tensor in each)
    return size, any(tensor.is_cuda for tensor in each)


def _measure_received(given: Kwargs, coordinator: Any) -> tuple[int, bool]:
    size = given["dtype"].itemsize
    for length in given["size"]:
        size *= length
    return size, str(coordinator.device).startswith("cuda")

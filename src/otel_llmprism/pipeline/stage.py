# What every step of the pipeline is: a pure function of batches with a little state.
# A stage knows no neighbour; service/wiring.py alone names the order.
from collections.abc import Iterable
from typing import Protocol, TypeVar

In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)

END_OF_TIME_NS = (1 << 63) - 1


class Stage(Protocol[In_contra, Out_co]):
    def consume(self, batch: In_contra, /) -> Iterable[Out_co]:
        """Take one batch; give what can leave now. The batch belongs to the stage from here on."""
        ...

    def flush(self, due_ns: int, /) -> Iterable[Out_co]:
        """Give what is due by `due_ns` (CLOCK_MONOTONIC); END_OF_TIME_NS gives everything."""
        ...

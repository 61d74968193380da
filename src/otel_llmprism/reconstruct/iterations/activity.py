# What comes in: ranges, calls or kernels of one process as columns, names interned. Any clock, as long as it
# is one.
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import U32, U64

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Activity:
    """Equally long columns, oldest first; `name` is a place in `names`, `thread` any number of one thread."""

    name: U32
    start_ns: I64
    duration_ns: I64
    thread: U64
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def end_ns(self) -> I64:
        return self.start_ns + self.duration_ns


def build_activity(
    names: list[str], start_ns: npt.ArrayLike, duration_ns: npt.ArrayLike, thread: npt.ArrayLike
) -> Activity:
    """Return the columns by start, longest first where starts agree, without what never ended."""
    start, duration = np.asarray(start_ns, np.int64), np.asarray(duration_ns, np.int64)
    places: dict[str, int] = {}
    codes = np.array([places.setdefault(name, len(places)) for name in names], np.uint32)
    order = np.lexsort((-duration, start))
    order = order[duration[order] >= 0]
    threads = np.asarray(thread).astype(np.uint64)
    return Activity(codes[order], start[order], duration[order], threads[order], tuple(places))

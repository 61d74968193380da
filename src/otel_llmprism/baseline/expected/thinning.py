# Chooses which rows to keep when there are too many: rare work wholly, common work fairly shared, within it
# half the newest and half spread over all time. Knows numbers of cells and an order, nothing else.
import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import F64, U8

Rows = npt.NDArray[np.intp]
CELLS_PER_DOUBLING = 2


def number_cells(kind: U8, values: F64) -> npt.NDArray[np.int64]:
    """Return one number a row, equal for rows of the same kind and about the same work; NaN is a cell too."""
    logs = np.log2(1.0 + np.clip(np.nan_to_num(values, nan=-0.5, posinf=1e300), -0.5, 1e300))
    cells = np.column_stack([kind.astype(np.float64), np.floor(logs * CELLS_PER_DOUBLING)])
    _, number = np.unique(cells, axis=0, return_inverse=True)
    return number.reshape(-1).astype(np.int64)


def choose_rows(cells: npt.NDArray[np.int64], keep: int, keys: F64) -> Rows:
    """Return at most `keep` rows in order; the rows come oldest first.

    Older rows compete by their keys, drawn once for each row's life: thinned again and again, what is left of
    them stays spread over all time.
    """
    if len(cells) <= keep:
        return np.arange(len(cells))
    sizes = np.bincount(cells)
    share = _find_share(sizes, keep)
    if share == 0:  # more cells than places: one row each of some
        order = np.argsort(keys, kind="stable")
        _, first = np.unique(cells[order], return_index=True)
        return np.sort(order[np.sort(first)[:keep]])
    # Newest first within a cell; the newer half of the share is kept, the rest by key from what is older.
    age = _number_within(cells[::-1])[::-1]
    newest = age < (share + 1) // 2
    order = np.lexsort((np.where(newest, -1.0, keys), cells))
    rank = np.empty(len(cells), np.int64)
    rank[order] = _number_within(cells[order])
    return np.flatnonzero(rank < share)


def _find_share(sizes: npt.NDArray[np.int64], keep: int) -> int:
    """Return the largest share at which min(size, share) summed over the cells fits."""
    low, high = 0, int(sizes.max())
    while low < high:
        middle = (low + high + 1) // 2
        if np.minimum(sizes, middle).sum() <= keep:
            low = middle
        else:
            high = middle - 1
    return low


def _number_within(cells: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return each row's place among the rows of its cell."""
    order = np.argsort(cells, kind="stable")
    sorted_cells = cells[order]
    starts = np.r_[0, np.flatnonzero(np.diff(sorted_cells)) + 1]
    lengths = np.diff(np.r_[starts, len(cells)])
    place = np.empty(len(cells), np.int64)
    place[order] = np.arange(len(cells)) - np.repeat(starts, lengths)
    return place

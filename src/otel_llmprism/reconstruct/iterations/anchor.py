# A stream of ranges or calls -> iterations, by the one range that stands once in each of them. The best
# anchor divides everything else evenly; of equals, the outermost.
import numpy as np
import numpy.typing as npt

from otel_llmprism.model.steps import U32
from otel_llmprism.reconstruct.iterations.activity import I64, Activity, Mask
from otel_llmprism.reconstruct.iterations.anchor_scores import AnchorScore, score_anchor
from otel_llmprism.reconstruct.iterations.iteration_table import (
    Evidence,
    IterationTable,
    Recognition,
    doubt,
    find_none,
)
from otel_llmprism.reconstruct.iterations.kinds import tell_kinds
from otel_llmprism.reconstruct.iterations.range_names import (
    fold_names,
    is_inner_name,
    is_iteration_name,
)

MIN_SCORE = 0.6
MAX_CANDIDATES = 64
MAX_NAMES = 2048  # the most frequent; what is rarer is no anchor
_NEARLY_EQUAL = 0.95
_ENCLOSING = 0.5  # an anchor that covers so much of the time is the iteration; else it marks where one begins
INNER_SHARE = 0.35  # of the kernels of an iteration that come back in it, layer after layer
_FEW = 4  # iterations: fewer prove less
Rows = npt.NDArray[np.intp]


def recognize_by_anchor(activity: Activity) -> Recognition:
    """Return the iterations that a range marks, or that none does."""
    if not len(activity):
        return find_none("there is no activity")
    folded, names = fold_names(activity.name, activity.names)
    named = _try_named(activity, folded)
    if named is not None:
        return named
    best = _choose(activity, folded, len(names))
    if best is None:
        return find_none("no range or call that could begin an iteration comes back")
    score, rows = best
    if not score.is_witnessed:
        return find_none("what comes back stands alone: nothing tells that it is an iteration")
    if score.total < MIN_SCORE:
        return find_none(
            f"no range divides the stream evenly: the best, {activity.names[activity.name[rows[0]]]!r},"
            f" scores {score.total:.2f} of the {MIN_SCORE} it takes"
        )
    confidence = score.total * (len(rows) / (len(rows) + 1) if len(rows) < _FEW else 1.0)
    why = (
        f"{len(rows)} times {activity.names[activity.name[rows[0]]]!r}: {score.completeness:.0%} of all names"
        f" stand in nearly every part between, their counts agree in {score.consistency:.0%}"
    )
    return _build(activity, rows, confidence, why, is_enclosing=score.coverage >= _ENCLOSING)


def recognize_by_kernel_names(kernels: Activity) -> Recognition:
    """Return the iterations that a kernel marks; unsure where they could as well be layers of one."""
    if not len(kernels):
        return find_none("there is no activity")
    folded, names = fold_names(kernels.name, kernels.names)
    best = _choose(kernels, folded, len(names), is_any_name=True)
    if best is None or best[0].total < MIN_SCORE or not best[0].is_witnessed:
        return find_none("no kernel divides the stream evenly")
    score, rows = best
    found = _build(kernels, rows, score.total, f"{len(rows)} times one kernel", is_enclosing=False)
    return found if score.inner >= INNER_SHARE else doubt(found)


def _choose(
    activity: Activity, folded: U32, name_count: int, *, is_any_name: bool = False
) -> tuple[AnchorScore, Rows] | None:
    """Return the best candidate with its score."""
    best: tuple[AnchorScore, Rows] | None = None
    kept = _keep_frequent(folded, name_count)
    for rows in _list_candidates(activity, folded, is_any_name=is_any_name):
        own = activity.start_ns[rows], activity.end_ns[rows]
        score = score_anchor(*own, folded[kept], activity.start_ns[kept], name_count)
        if best is None or _is_better(score, rows, best, activity):
            best = score, rows
    return best


def _try_named(activity: Activity, folded: U32) -> Recognition | None:
    """Return the iterations of the outermost range that a framework names as its iteration."""
    is_named = np.array([is_iteration_name(text) for text in activity.names])[activity.name]
    if not is_named.any():
        return None
    groups = [np.flatnonzero(is_named & (folded == code)) for code in np.unique(folded[is_named])]
    longest = max(groups, key=lambda rows: float(np.median(activity.duration_ns[rows])))
    thread = activity.thread[longest[0]]
    # All that lie outermost on that thread: one framework may name its prefills and decodes apart.
    rows = np.flatnonzero(is_named & (activity.thread == thread))
    rows = rows[_find_outermost(activity.start_ns[rows], activity.end_ns[rows])]
    why = f"{len(rows)} times {activity.names[activity.name[rows[0]]]!r}, which names an iteration"
    return _build(activity, rows, 0.95, why, is_enclosing=True)


def _list_candidates(activity: Activity, folded: U32, *, is_any_name: bool) -> list[Rows]:
    """Return the rows of names that come back on one thread; operators and the like begin no iteration."""
    is_inner = [not is_any_name and is_inner_name(text) for text in activity.names]
    is_outer_name = ~np.array(is_inner, bool)
    keys = activity.thread.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ folded.astype(np.uint64)
    order = np.argsort(keys, kind="stable")
    edges = np.flatnonzero(np.diff(keys[order])) + 1
    groups = [rows for rows in np.split(order, edges) if len(rows) >= 2]
    groups = [rows for rows in groups if is_outer_name[activity.name[rows[0]]]]
    # Both the long ones and the rare ones may be the anchor.
    by_time = sorted(groups, key=lambda rows: -int(activity.duration_ns[rows].sum()))
    by_count = sorted(groups, key=len)
    chosen = {
        int(rows[0]): rows for rows in (*by_time[: MAX_CANDIDATES // 2], *by_count[: MAX_CANDIDATES // 2])
    }
    outermost = [
        rows[_find_outermost(activity.start_ns[rows], activity.end_ns[rows])] for rows in chosen.values()
    ]
    return [rows for rows in outermost if len(rows) >= 2]


def _find_outermost(start: I64, end: I64) -> Mask:
    """Tell which ranges, in order of start, lie in none before them."""
    reached = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]))
    is_outer: Mask = start >= reached
    return is_outer


def _keep_frequent(folded: U32, name_count: int) -> Mask:
    if name_count <= MAX_NAMES:
        return np.ones(len(folded), bool)
    seen = np.bincount(folded, minlength=name_count)
    is_kept = np.zeros(name_count, bool)
    is_kept[np.argsort(-seen)[:MAX_NAMES]] = True
    kept: Mask = is_kept[folded]
    return kept


def _is_better(score: AnchorScore, rows: Rows, best: tuple[AnchorScore, Rows], activity: Activity) -> bool:
    """Tell whether a candidate beats the best so far: clearly, or as well and further out."""
    old, old_rows = best
    if score.total * _NEARLY_EQUAL > old.total:
        return True
    if score.total < old.total * _NEARLY_EQUAL:
        return False
    inside = activity.duration_ns[rows].sum(), activity.duration_ns[old_rows].sum()
    return bool(inside[0] > inside[1])


def _build(activity: Activity, rows: Rows, confidence: float, why: str, *, is_enclosing: bool) -> Recognition:
    begin, end = activity.start_ns[rows], activity.end_ns[rows]
    if not is_enclosing:
        usual = int(np.median(np.diff(begin)))
        end = np.append(begin[1:], min(int(begin[-1]) + usual, int(activity.end_ns.max())))
    kind, how = tell_kinds(activity, begin, end)
    table = IterationTable(begin, end, kind, np.full(len(rows), confidence))
    return Recognition(table, Evidence.ANCHOR, f"{why}; {how}", activity.names[activity.name[rows[0]]])

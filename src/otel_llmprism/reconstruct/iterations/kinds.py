# Iterations -> prefill, decode, mixed or training: by names inside them where they tell, else by how long
# they take and how much they do, where two sorts stand clearly apart. Else nothing is claimed.
import numpy as np

from otel_llmprism.model.steps import U8
from otel_llmprism.native.ring_codes import StepKind
from otel_llmprism.reconstruct.iterations.activity import I64, Activity, Mask
from otel_llmprism.reconstruct.iterations.mixture import split_in_two
from otel_llmprism.reconstruct.iterations.range_names import read_kinds

_SURE = 0.9  # share of iterations whose names must agree on a kind before the names are believed


def tell_kinds(activity: Activity, begin: I64, end: I64) -> tuple[U8, str]:
    """Return each iteration's kind and, in words, by what it was told."""
    by_names = tell_kinds_by_names(activity, begin, end)
    if (by_names != StepKind.UNKNOWN).mean() >= _SURE:
        return by_names, "kinds by names"
    inside = np.searchsorted(activity.start_ns, end) - np.searchsorted(activity.start_ns, begin)
    is_long = split_in_two(np.stack([np.log(np.maximum(end - begin, 1)), np.log1p(inside)], axis=1))
    if is_long is None:
        return by_names, "kinds not told: the iterations are of one sort"
    kind = np.where(is_long, StepKind.PREFILL, StepKind.DECODE).astype(np.uint8)
    kind = np.where(by_names != StepKind.UNKNOWN, by_names, kind)
    return kind, "kinds by duration and amount: the longer sort is taken for prefill"


def tell_kinds_by_names(activity: Activity, begin: I64, end: I64) -> U8:
    """Return the kinds that names inside each iteration tell; prefill and decode together are mixed."""
    kinds = read_kinds(activity.names)[activity.name] if len(activity.names) else np.empty(0, np.uint8)
    rows = np.flatnonzero(kinds)
    place = np.searchsorted(begin, activity.start_ns[rows], side="right") - 1
    is_inside = (place >= 0) & (activity.start_ns[rows] < end[np.maximum(place, 0)])
    place, told = place[is_inside], kinds[rows][is_inside]
    has: dict[StepKind, Mask] = {
        kind: np.bincount(place[told == kind], minlength=len(begin)) > 0
        for kind in (StepKind.PREFILL, StepKind.DECODE, StepKind.MIXED, StepKind.TRAIN)
    }
    is_mixed = has[StepKind.MIXED] | (has[StepKind.PREFILL] & has[StepKind.DECODE])
    choices = [has[StepKind.TRAIN], is_mixed, has[StepKind.PREFILL], has[StepKind.DECODE]]
    codes = [StepKind.TRAIN, StepKind.MIXED, StepKind.PREFILL, StepKind.DECODE]
    return np.select(choices, codes, StepKind.UNKNOWN).astype(np.uint8)

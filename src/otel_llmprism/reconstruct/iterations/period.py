# Starts and durations alone -> iterations: the stream falls into parts by its longer pauses, and the parts
# must repeat. A repetition without a pause may as well be layers of one iteration, and is not claimed.
import numpy as np

from otel_llmprism.reconstruct.iterations.activity import I64, Activity
from otel_llmprism.reconstruct.iterations.iteration_table import (
    Evidence,
    IterationTable,
    Recognition,
    doubt,
    find_none,
)
from otel_llmprism.reconstruct.iterations.kinds import tell_kinds
from otel_llmprism.reconstruct.iterations.pauses import measure_pauses
from otel_llmprism.reconstruct.iterations.repetition import Repetition, find_repetition

MIN_ACTIVITIES = 12
MIN_SCORE = 0.6
MIN_WHOLE = 2
MIN_INNER = 0.5  # likeness of a part to itself some activities on: its layers
_CUT_OFF = 0.8  # of the usual number of activities; a part at the edge with fewer is not whole


def recognize_by_period(activity: Activity) -> Recognition:
    """Return the iterations that repeat in time, or that nothing does; names are not looked at."""
    if len(activity) < MIN_ACTIVITIES:
        return find_none(f"{len(activity)} activities are too few to see a period")
    pauses = measure_pauses(activity)
    found = find_repetition(pauses, np.log(np.maximum(activity.duration_ns, 1).astype(np.float64)))
    if found is None or found.score < MIN_SCORE:
        said = (
            "nothing repeats with pauses between" if found is None else f"the best scores {found.score:.2f}"
        )
        return find_none(f"no period: {said}")
    begin, end = _place(activity, found)
    if len(begin) < MIN_WHOLE:
        return find_none(f"no period with pauses between: only {len(begin)} whole parts")
    kind, how = tell_kinds(activity, begin, end)
    usual = float(np.median(np.diff(begin)))
    why = (
        f"{len(begin)} parts of {found.activities:.0f} activities every {usual / 1e6:.3g} ms, with pauses"
        f" {found.contrast:.3g} times those within; {how}"
    )
    table = IterationTable(begin, end, kind, np.full(len(begin), 0.9 * found.score))
    recognition = Recognition(table, Evidence.PERIOD, why)
    return recognition if found.inner >= MIN_INNER else doubt(recognition)


def _place(activity: Activity, found: Repetition) -> tuple[I64, I64]:
    """Return begins and ends of the parts, without those that the recording cut off at its edges."""
    first = found.first_rows
    begin = activity.start_ns[first]
    reached = np.maximum.accumulate(activity.end_ns)
    end = np.minimum(np.append(reached[first[1:] - 1], reached[-1]), np.append(begin[1:], reached[-1]))
    counts = np.diff(np.append(first, len(activity)))
    is_short = counts < _CUT_OFF * np.median(counts)
    low, high = int(is_short[0]), len(counts) - int(is_short[-1])
    return begin[low:high], end[low:high]

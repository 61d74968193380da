# Activities, overlapping or not -> the pause before each. Pure.
import numpy as np

from otel_llmprism.model.steps import F64
from otel_llmprism.reconstruct.iterations.activity import Activity

FLOOR_NS = 200.0  # what clocks of activities can tell apart


def measure_pauses(activity: Activity) -> F64:
    """Return how long nothing ran before each activity but the first; FLOOR_NS where something did."""
    reached = np.maximum.accumulate(activity.end_ns)
    pauses: F64 = np.maximum((activity.start_ns[1:] - reached[:-1]).astype(np.float64), FLOOR_NS)
    return pauses

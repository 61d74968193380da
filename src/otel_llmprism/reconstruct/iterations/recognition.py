# What a process without step hooks showed -> its iterations, by the best evidence there is: ranges or calls
# of the host, then names of kernels, then kernels' times alone.
from otel_llmprism.reconstruct.iterations.activity import Activity
from otel_llmprism.reconstruct.iterations.anchor import recognize_by_anchor, recognize_by_kernel_names
from otel_llmprism.reconstruct.iterations.iteration_table import Recognition, find_none
from otel_llmprism.reconstruct.iterations.period import recognize_by_period

MIN_CONFIDENCE = 0.5


def recognize_iterations(
    ranges: Activity | None, kernels: Activity | None, min_confidence: float = MIN_CONFIDENCE
) -> Recognition:
    """Return the first answer sure enough; else none, with the reason of each that failed.

    Both are of one process; kernels of one device.
    """
    reasons = []
    for source, activity, recognize in (
        ("ranges", ranges, recognize_by_anchor),
        ("kernel names", kernels, recognize_by_kernel_names),
        ("kernel times", kernels, recognize_by_period),
    ):
        if activity is None or not len(activity):
            continue
        found = recognize(activity)
        if found and float(found.iterations.confidence.min()) >= min_confidence:
            return found
        reasons.append(f"{source}: {found.why}")
    return find_none("; ".join(reasons) or "there is no activity")

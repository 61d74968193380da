# Which columns of step records are work: counts of what was in a step. What came of a step (times, gaps),
# when it was (clock, hour, number) and what waited beside it explains nothing and would hide what is wrong.
import re

from otel_llmprism.model.work import STANDARD_FEATURES

KNOWN_COLUMNS = frozenset({"start_ns", "duration_ns", "engine", "kind", "instance"})
MAX_FEATURES = 64

_NO_WORK = re.compile(
    r"(.*_)?(ns|us|ms|s|sec|secs|seconds|time|timestamp|ts|date|hour|day|weekday|id|ids|idx|index|row|seq|uuid"
    r"|step|iteration|latency|duration|residual|expected|anomalous|score|label|seed)"
    r"|waiting|preemptions|rank|pid|tid|unnamed.*|",
    re.IGNORECASE,
)


def is_work(name: str) -> bool:
    """Tell by its name whether a numeric column may explain a step's time."""
    return name in STANDARD_FEATURES or (name not in KNOWN_COLUMNS and not _NO_WORK.fullmatch(name))

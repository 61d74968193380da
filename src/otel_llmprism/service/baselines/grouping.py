# Which steps a fit must keep together when it tests itself: neighbours in time are alike, and so are the
# steps of one instance. Pure.
import numpy as np

from otel_llmprism.service.baselines.gathering import I64, StepPart

# From so many instances of a kind on, a fit is tested on instances it did not see: that is what it will be
# asked about.
MIN_INSTANCES = 5
BLOCKS_OF_INSTANCE = 20
MIN_BLOCK_STEPS = 10


def build_groups(parts: list[StepPart]) -> I64:
    """Return each step's group, parts one after another: its instance, or instance and block of time."""
    own = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    kind = np.concatenate([part.work.kind for part in parts])
    blocks = np.concatenate([cut_blocks(len(part)) for part in parts])
    groups: I64 = own * BLOCKS_OF_INSTANCE + blocks
    for code in np.unique(kind):
        rows = kind == code
        if len(np.unique(own[rows])) >= MIN_INSTANCES:
            groups[rows] = own[rows] * BLOCKS_OF_INSTANCE
    return groups


def cut_blocks(count: int) -> I64:
    """Return each of `count` ordered steps' block: equally many in each."""
    blocks = max(1, min(BLOCKS_OF_INSTANCE, count // MIN_BLOCK_STEPS))
    return np.arange(count, dtype=np.int64) * blocks // max(1, count)

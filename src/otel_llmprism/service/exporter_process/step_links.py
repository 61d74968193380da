# Which of a kept step's sampled requests it links to: those in prefill, those that joined, those that
# left, then at random; the rest is counted. Pure.
from collections.abc import Callable, Collection

import numpy as np

from otel_llmprism.model.members import StepMembers

MAX_LINKS = 128


def choose_linked(
    members: StepMembers,
    is_sampled: Callable[[int], bool],
    moved: tuple[Collection[int], Collection[int]],
    seed: int,
    limit: int = MAX_LINKS,
) -> tuple[list[int], int]:
    """Return rows of `members` to link to, and how many sampled ones are left out.

    `moved`: handles that joined with this step and that ended with it. `seed` makes the random part
    repeatable.
    """
    handles, is_prefill = members.handle.tolist(), members.is_prefill.tolist()
    sampled = [row for row, handle in enumerate(handles) if is_sampled(handle)]
    if len(sampled) <= limit:
        return sampled, 0
    joined, left = moved
    shuffled = np.random.default_rng(seed).permutation(sampled).tolist()
    shuffled.sort(key=lambda row: (not is_prefill[row], handles[row] not in joined, handles[row] not in left))
    return sorted(shuffled[:limit]), len(sampled) - limit

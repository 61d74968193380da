# Seeds that never meet: what one is for is part of it, and so is the split. Figures come from the split
# "evaluation"; whoever changes a threshold looks at "tuning".
import hashlib
from enum import StrEnum


class Purpose(StrEnum):
    ARRIVALS = "arrivals"
    SCHEDULE = "schedule"
    DEFAULTS = "defaults"
    ANALYSIS = "analysis"


class Split(StrEnum):
    TUNING = "tuning"
    EVALUATION = "evaluation"


def derive_seed(purpose: Purpose, split: Split, kind: str, number: int) -> int:
    """Return a seed of 32 bits for one purpose of one recording."""
    text = f"{purpose}\0{split}\0{kind}\0{number}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")

# What a user may set about the embedded store. Values only; opens nothing.
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """`index_attributes` come on top of the built-in keys; content stays unsearchable unless asked."""

    folder: Path
    max_bytes: int = 2 * GIB
    max_age_s: float = 7 * 86400.0
    durability: Literal["process", "host"] = "process"
    index_attributes: tuple[str, ...] = ()
    index_content: bool = False
    queue_bytes: int = 32 << 20
    block_bytes: int = 1 << 20

# What a user can set about acceptance: how durable, how much, where. Plain values, checked here.
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from otel_llmprism.native.log_frame import CURRENT_VERSION, READABLE_VERSIONS

MIB = 1 << 20
MIN_LOG_BYTES = MIB
MAX_SEGMENT_BYTES = 64 * MIB


class Durability(StrEnum):
    MEMORY = "memory"  # lost with the process
    PROCESS = "process"  # written before it is acknowledged: survives kill -9, not a power cut
    HOST = "host"  # on the disk before it is acknowledged: survives a power cut


@dataclass(frozen=True, slots=True)
class LogConfig:
    directory: Path
    max_bytes: int = 1024 * MIB
    segment_bytes: int = 0  # 0: a sixteenth of max_bytes, at most 64 MiB
    format_version: int = CURRENT_VERSION  # one below it: what the release before can read, for a way back

    def __post_init__(self) -> None:
        if self.max_bytes < MIN_LOG_BYTES:
            raise ValueError(
                f"log.max_bytes is {self.max_bytes}; below {MIN_LOG_BYTES} no ordinary request fits"
            )
        if self.format_version not in READABLE_VERSIONS:
            raise ValueError(f"log.format_version must be one of {READABLE_VERSIONS}")
        if not 0 <= self.segment_bytes <= self.max_bytes:
            raise ValueError("log.segment_bytes must lie between 0 (chosen for you) and log.max_bytes")

    @property
    def effective_segment_bytes(self) -> int:
        return self.segment_bytes or min(MAX_SEGMENT_BYTES, self.max_bytes // 16)


@dataclass(frozen=True, slots=True)
class IngressConfig:
    durability: Durability = Durability.MEMORY
    queue_bytes: int = 64 * MIB
    queue_requests: int = 10_000
    log: LogConfig | None = None
    replay_metrics_max_age_s: float = 300.0
    retry_after_s: float = 1.0

    def __post_init__(self) -> None:
        if self.durability is not Durability.MEMORY:
            self.require_log()
        if self.queue_bytes <= 0 or self.queue_requests <= 0:
            raise ValueError("queue_bytes and queue_requests must be above 0")

    def require_log(self) -> LogConfig:
        """Give the log's settings, which every durability but memory needs."""
        if self.log is None:
            raise ValueError(f"durability {self.durability} needs log.directory; or set durability: memory")
        return self.log

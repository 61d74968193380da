# The way in: where receivers put requests and the runner takes batches. Says which of the two
# kinds is built (memory only, or behind the write-ahead log); knows neither receivers nor stages.
import time
from collections.abc import Callable
from typing import Protocol

from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ingress_config import Durability, IngressConfig
from otel_llmprism.pipeline.logged_ingress import LoggedIngress
from otel_llmprism.pipeline.memory_ingress import MemoryIngress
from otel_llmprism.pipeline.ports import Ingress


class Feed(Ingress, Protocol):
    """An Ingress as the runner sees it: also the end that batches are taken from."""

    def start(self) -> None:
        """Accept from now on; raises OSError with the mend when the folder cannot be used."""
        ...

    def take(self, timeout_s: float, /) -> Batch | None:
        """Give the next batch in order; wait up to `timeout_s`. Called from one thread."""
        ...

    def close(self) -> None:
        """Refuse from now on (UNAVAILABLE); what was accepted can still be taken."""
        ...

    def release(self) -> None:
        """Let go of everything after the last take; what is left stays in the log or is counted as lost."""
        ...

    def record_gauges(self, now_ns: int, /) -> None:
        """Set the gauges of bytes, requests and age that wait."""
        ...


def build_ingress(
    config: IngressConfig,
    counters: Counters,
    monotonic_ns: Callable[[], int] = time.monotonic_ns,
) -> Feed:
    """Give the ingress that `config.durability` asks for, not yet started."""
    if config.durability is Durability.MEMORY:
        return MemoryIngress(config, counters, monotonic_ns)
    return LoggedIngress(config, counters, monotonic_ns)

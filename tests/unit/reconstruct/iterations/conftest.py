# Streams of a made-up engine whose iterations are known.
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from otel_llmprism.reconstruct.iterations import Activity, build_activity

MS = 1_000_000


@dataclass
class Engine:
    """Writes ranges and kernels of iterations one after another; `begins` is the truth."""

    seed: int = 1
    layers: int = 12
    jitter: float = 0.02
    prefill: str = "forward_extend"
    decode: str = "forward_decode"
    step: str = "run_batch"
    idle_ms: float = 1.0
    now: float = 0.0
    ranges: list[tuple[str, float, float, int]] = field(default_factory=list)
    kernels: list[tuple[str, float, float, int]] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def run(self, kinds: str) -> "Engine":
        """One iteration a letter: p(refill) or d(ecode)."""
        for letter in kinds:
            self.run_iteration(is_prefill=letter == "p")
        return self

    def run_iteration(self, *, is_prefill: bool) -> None:
        scale = 8.0 if is_prefill else 1.0
        begin = self.now
        self.begins.append(int(begin))
        self._spend("get_next_batch", 0.3, 0)
        forward = self.now
        for name, length in self._list_kernels():
            self._launch(name, length * scale)
        if name := self.prefill if is_prefill else self.decode:
            self.ranges.append((name, forward, self.now - forward, 0))
        self._spend("sample", 0.2, 0)
        if self.step:
            self.ranges.append((self.step, begin, self.now - begin, 0))
        self.now += self.idle_ms * MS * self._wobble()

    def _list_kernels(self) -> Iterator[tuple[str, float]]:
        yield "embed", 0.02
        for _ in range(self.layers):
            yield from (
                ("norm", 0.01),
                ("qkv", 0.08),
                ("attention", 0.05),
                ("mlp_up", 0.15),
                ("mlp_down", 0.11),
            )
        yield from (("norm", 0.01), ("lm_head", 0.3), ("argmax", 0.02))

    def _launch(self, name: str, length_ms: float) -> None:
        length = length_ms * MS * self._wobble()
        self.ranges.append((f"aten::{name}", self.now, length, 0))
        self.kernels.append((name, self.now, length, 0))
        self.now += length + 0.003 * MS * self._wobble()

    def _spend(self, name: str, length_ms: float, thread: int) -> None:
        length = length_ms * MS * self._wobble()
        self.ranges.append((name, self.now, length, thread))
        self.now += length

    def _wobble(self) -> float:
        return float(self.rng.lognormal(0, self.jitter))

    def read_ranges(self) -> Activity:
        return to_activity(self.ranges)

    def read_kernels(self) -> Activity:
        return to_activity(self.kernels)


def to_activity(rows: list[tuple[str, float, float, int]]) -> Activity:
    names, starts, lengths, threads = zip(*rows, strict=True) if rows else ((), (), (), ())
    return build_activity(
        list(names), np.array(starts, np.int64), np.array(lengths, np.int64), np.array(threads, np.uint64)
    )


@pytest.fixture
def make_engine() -> Callable[..., Engine]:
    return Engine


@pytest.fixture
def make_activity() -> Callable[[list[tuple[str, float, float, int]]], Activity]:
    return to_activity

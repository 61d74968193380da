# A sentinel for tests: real charts and diagnosis, and a model that knows the law of made ledgers at once.
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest

from otel_llmprism.model.steps import U64
from otel_llmprism.model.work import ExpectationTable, WorkTable
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.service.sentinel.core import CoreConfig, SentinelCore
from otel_llmprism.service.sentinel.news import News
from otel_llmprism.service.sentinel.parts import Parts
from otel_llmprism.service.sentinel.slow_median import I64
from otel_llmprism.service.sentinel.training import SyncTrainer
from otel_llmprism.service.sentinel.wiring import build_parts
from otel_llmprism.testing.made_ledger import MadeLedger


@dataclass(frozen=True)
class LawModel:
    """Expects `scale` times what a made ledger's steps cost."""

    scale: float = 1.0

    @property
    def version(self) -> str:
        return f"law-{self.scale:g}"

    def predict(self, work: WorkTable) -> ExpectationTable:
        requests, kv, prefill = (
            np.nan_to_num(work.read_feature(name)) for name in ("requests", "kv_tokens", "prefill_tokens")
        )
        expected = self.scale * 8e6 * (0.6 + 0.01 * requests + 4e-6 * kv + 5e-4 * prefill)
        return ExpectationTable(expected, np.full(len(work), 0.05), np.ones(len(work), dtype=np.uint8))


def fit_law(work: WorkTable, cycle_ns: U64, groups: I64, seed: int) -> LawModel:
    if len(cycle_ns) < 10:
        raise ValueError("too few steps")
    return LawModel()


def load_law(raw: bytes) -> LawModel:
    if not raw.startswith(b"law-"):
        raise ValueError("this is no model")
    return LawModel(float(raw[4:]))


def compare_laws(new: LawModel, old: LawModel, work: WorkTable) -> Mapping[int, float]:
    return {2: new.scale / old.scale}


@pytest.fixture
def parts() -> Parts:
    return replace(
        build_parts(),
        fit=fit_law,
        dump=lambda model: model.version.encode(),
        load=load_law,
        compare=compare_laws,  # type: ignore[arg-type]
    )


@dataclass
class Bench:
    """A core, and what it said so far."""

    core: SentinelCore
    counters: Counters

    def play(self, ledger: MadeLedger) -> News:
        heard = News()
        for batch, arrived_ns in ledger.list_batches():
            heard.extend(self.core.take(batch, arrived_ns))
            heard.extend(self.core.advance(arrived_ns))
        return heard


@pytest.fixture
def build_bench(parts: Parts) -> Callable[[], Bench]:
    def build() -> Bench:
        numbers, counters = itertools.count(1), Counters()
        core = SentinelCore(
            CoreConfig(), parts, SyncTrainer(parts), counters, lambda: f"{next(numbers):032x}"
        )
        return Bench(core, counters)

    return build


@pytest.fixture
def bench(build_bench: Callable[[], Bench]) -> Bench:
    return build_bench()

# Expected time: what a step should take by the work in it, learned from steps of one engine. Bytes in and
# out, no files, no clock.
from otel_llmprism.baseline.expected.drift import Drift, KindDrift, compare_expected
from otel_llmprism.baseline.expected.fit import fit_expected
from otel_llmprism.baseline.expected.format import dump_expected, load_expected
from otel_llmprism.baseline.expected.model import ExpectedTime
from otel_llmprism.baseline.expected.one_thread import stay_on_one_thread
from otel_llmprism.baseline.expected.part import KindPart, PartReport
from otel_llmprism.baseline.expected.reservoir import Reservoir, ReservoirConfig
from otel_llmprism.baseline.expected.settings import BaselineFormatError, FitSettings, TooFewStepsError

__all__ = [
    "BaselineFormatError",
    "Drift",
    "ExpectedTime",
    "FitSettings",
    "KindDrift",
    "KindPart",
    "PartReport",
    "Reservoir",
    "ReservoirConfig",
    "TooFewStepsError",
    "compare_expected",
    "dump_expected",
    "fit_expected",
    "load_expected",
    "stay_on_one_thread",
]

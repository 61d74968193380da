# Two folders' models -> where they disagree about the same work, kind by kind.
from otel_llmprism.baseline.expected import Drift, compare_expected
from otel_llmprism.service.baselines.gathering import join_work
from otel_llmprism.service.baselines.stored_baseline import StoredBaseline

DRIFT = 0.05  # beyond it a difference is worth a word


def compare_baselines(new: StoredBaseline, old: StoredBaseline) -> Drift:
    """Return the ratio new / old for each kind, asked about samples of the work both were fitted on."""
    return compare_expected(new.model, old.model, join_work([new.probe, old.probe]))

# Rows and what was expected of them -> how well they agree, by instance and kind. Bounded by the number of
# groups, not of rows.
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from otel_llmprism.receivers.step_records import RecordBatch
from otel_llmprism.semconv.step import KINDS
from otel_llmprism.service.baselines.gathering import UNCHARTED
from otel_llmprism.service.baselines.prediction import BaselineSet

MAX_GROUPS = 4096  # instances beyond share the last
OTHERS = "(others)"
_SD_OF_95 = 1.959964
_WITHIN = 0.1


@dataclass(slots=True)
class Agreement:
    """Sums over rows; a row without an answer counts in `rows` only."""

    rows: int = 0
    answered: int = 0
    error_sum: float = 0.0
    within: int = 0
    inside_interval: int = 0
    known: int = 0

    def add(self, ratio: npt.NDArray[np.float64], spread: npt.NDArray[np.float64], known: int) -> None:
        """Take rows' predicted / observed, NaN where nothing was predicted."""
        is_answered = np.isfinite(ratio)
        error = np.abs(ratio[is_answered] - 1)
        self.rows += len(ratio)
        self.answered += int(np.count_nonzero(is_answered))
        self.error_sum += float(error.sum())
        self.within += int(np.count_nonzero(error <= _WITHIN))
        bound = _SD_OF_95 * spread[is_answered]
        self.inside_interval += int(np.count_nonzero(np.abs(np.log(ratio[is_answered])) <= bound))
        self.known += known

    def to_json(self) -> dict[str, float | int | None]:
        """Return fractions; None where no row had an answer."""

        def share(count: float) -> float | None:
            return count / self.answered if self.answered else None

        return {
            "n": self.rows,
            "mape": share(self.error_sum),
            "within_10pct": share(self.within),
            "coverage": self.answered / self.rows if self.rows else 0.0,
            "inside_95pct": share(self.inside_interval),
            "known": share(self.known),
        }


@dataclass(slots=True)
class CheckReport:
    total: Agreement = field(default_factory=Agreement)
    groups: dict[tuple[str, str], Agreement] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        groups = [
            {"instance": instance, "kind": kind, **agreement.to_json()}
            for (instance, kind), agreement in sorted(self.groups.items())
        ]
        return {**self.total.to_json(), "groups": groups}


def check_batch(report: CheckReport, models: BaselineSet, batch: RecordBatch) -> None:
    """Add a batch's charted rows to `report`."""
    told = models.predict(batch)
    ratio = told.expected_ns / batch.cycle_ns
    charted = ~np.isin(batch.work.kind, UNCHARTED)
    codes = batch.instance.astype(np.int64) << 8 | batch.work.kind
    for code in np.unique(codes[charted]).tolist():
        rows = np.flatnonzero(charted & (codes == code))
        known = int(np.count_nonzero(told.is_known[rows] & np.isfinite(ratio[rows])))
        kind = KINDS[(code & 255) - 1] if 0 < code & 255 <= len(KINDS) else "unknown"
        key = (batch.instance_names[code >> 8], kind)
        if key not in report.groups and len(report.groups) >= MAX_GROUPS:
            key = (OTHERS, kind)
        for agreement in (report.total, report.groups.setdefault(key, Agreement())):
            agreement.add(ratio[rows], told.spread[rows], known)

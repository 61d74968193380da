# Samples of host, cgroup and GPU: numbers by process, rank and name. Times are CLOCK_MONOTONIC of the node.
from dataclasses import dataclass

import numpy as np

from otel_llmprism.model.steps import F64, U8, U16, U32, U64, Table

NO_RANK = (1 << 32) - 1
NO_PID = 0  # of the host as a whole


@dataclass(frozen=True, slots=True)
class SeriesTable(Table):
    """What is sampled; names lie in HostTables.names, one after the other."""

    pid: U32
    rank: U32  # NO_RANK: belongs to none
    name_bytes: U16


@dataclass(frozen=True, slots=True)
class SampleTable(Table):
    series_row: U32
    time_ns: U64
    value: F64


@dataclass(frozen=True, slots=True)
class HostTables:
    series: SeriesTable
    samples: SampleTable
    names: U8

    def list_names(self) -> list[str]:
        """Return the name of each series."""
        ends = np.cumsum(self.series.name_bytes, dtype=np.int64).tolist()
        starts = [0, *ends[:-1]]
        raw = self.names.tobytes()
        return [raw[start:end].decode("utf-8", "replace") for start, end in zip(starts, ends, strict=True)]

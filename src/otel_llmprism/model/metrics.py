# Metrics as columns: one row a metric (its points are counted, not read), views over one export request.
from dataclasses import dataclass

from otel_llmprism.model.spans import I32, U32, Origins
from otel_llmprism.model.steps import Table
from otel_llmprism.model.strings import TextColumn

GAUGE, SUM, HISTOGRAM, EXPONENTIAL_HISTOGRAM, SUMMARY = 5, 7, 9, 10, 11  # MetricTable.type; 0: no data


@dataclass(frozen=True, slots=True)
class MetricTable(Table):
    type: U32
    name: TextColumn
    unit: TextColumn
    temporality: I32  # 1 delta, 2 cumulative
    is_monotonic: U32
    point_count: U32
    resource: U32
    scope: U32
    flags: U32
    offset: U32
    length: U32
    origins: Origins

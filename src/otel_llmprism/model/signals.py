# The three OTLP signals, as every stage names them.
from enum import StrEnum


class Signal(StrEnum):
    TRACES = "traces"
    LOGS = "logs"
    METRICS = "metrics"

# The numbers that stand for signals on the disk. They never change.
from otel_llmprism.model.signals import Signal

NUMBERS = {Signal.TRACES: 1, Signal.LOGS: 2, Signal.METRICS: 3}
SIGNALS = {number: signal for signal, number in NUMBERS.items()}

# Streams of ranges, calls or activities of one process -> its iterations, or the word that there are none to
# be seen. For processes without step hooks.
from otel_llmprism.reconstruct.iterations.activity import Activity as Activity
from otel_llmprism.reconstruct.iterations.activity import build_activity as build_activity
from otel_llmprism.reconstruct.iterations.anchor import recognize_by_anchor as recognize_by_anchor
from otel_llmprism.reconstruct.iterations.anchor import (
    recognize_by_kernel_names as recognize_by_kernel_names,
)
from otel_llmprism.reconstruct.iterations.iteration_table import Evidence as Evidence
from otel_llmprism.reconstruct.iterations.iteration_table import IterationTable as IterationTable
from otel_llmprism.reconstruct.iterations.iteration_table import Recognition as Recognition
from otel_llmprism.reconstruct.iterations.period import recognize_by_period as recognize_by_period
from otel_llmprism.reconstruct.iterations.recognition import recognize_iterations as recognize_iterations

__all__ = [
    "Activity",
    "Evidence",
    "IterationTable",
    "Recognition",
    "build_activity",
    "recognize_by_anchor",
    "recognize_by_kernel_names",
    "recognize_by_period",
    "recognize_iterations",
]

# The ring's front door: what instrumentation and the exporter process import.
from otel_llmprism.native.ring_layout import RingError, RingHeader
from otel_llmprism.native.ring_members import RunningSet
from otel_llmprism.native.ring_reader import RingReader
from otel_llmprism.native.ring_writer import DEFAULT_SLOTS, RingWriter, read_clocks

__all__ = [
    "DEFAULT_SLOTS",
    "RingError",
    "RingHeader",
    "RingReader",
    "RingWriter",
    "RunningSet",
    "read_clocks",
]

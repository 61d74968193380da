# Tables, scored steps and chart readings -> incidents with their cause. Knows no clock, wire or exporter.
from otel_llmprism.diagnose.kinds import Domain, FindingKind, SubjectType
from otel_llmprism.diagnose.records import DiagnosisStateError
from otel_llmprism.diagnose.settings import DiagnosisConfig, SourceKey
from otel_llmprism.diagnose.stage import Diagnosis

__all__ = [
    "Diagnosis",
    "DiagnosisConfig",
    "DiagnosisStateError",
    "Domain",
    "FindingKind",
    "SourceKey",
    "SubjectType",
]

# What the environment asks of the exporter process. Strings in, a frozen answer out.
from collections.abc import Mapping
from dataclasses import dataclass

_DEFAULT_METRIC_INTERVAL_S = 5.0
_DEFAULT_BUDGET_BYTES_PER_S = 500_000.0


@dataclass(frozen=True, slots=True)
class ExporterSettings:
    poll_s: float = 0.1  # between two looks at the rings
    ship_s: float = 0.4  # ledger chunks; the contract allows 0.5
    host_s: float = 1.0
    metric_s: float = _DEFAULT_METRIC_INTERVAL_S
    budget_bytes_per_s: float = _DEFAULT_BUDGET_BYTES_PER_S
    drain_s: float = 5.0  # after SIGTERM or the engine's end, for what is left
    ships_ledger: bool = True
    sends_traces: bool = True
    sends_metrics: bool = True
    queue_bytes: int = 32 << 20


def read_exporter_settings(environment: Mapping[str, str]) -> ExporterSettings:
    """Read OTEL_LLMPRISM_* and the standard variables; what cannot be read means the default."""
    interval_ms = _read_number(environment, "OTEL_METRIC_EXPORT_INTERVAL", 1e3 * _DEFAULT_METRIC_INTERVAL_S)
    return ExporterSettings(
        metric_s=interval_ms / 1e3,
        budget_bytes_per_s=_read_number(
            environment, "OTEL_LLMPRISM_BYTES_PER_S", _DEFAULT_BUDGET_BYTES_PER_S
        ),
        ships_ledger=_read_word(environment, "OTEL_LLMPRISM_LEDGER") != "local"
        and _read_word(environment, "OTEL_LOGS_EXPORTER") != "none",
        sends_traces=_read_word(environment, "OTEL_TRACES_EXPORTER") != "none",
        sends_metrics=_read_word(environment, "OTEL_METRICS_EXPORTER") != "none",
    )


def _read_word(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name, "").strip().lower()


def _read_number(environment: Mapping[str, str], name: str, default: float) -> float:
    try:
        number = float(environment.get(name, ""))
    except ValueError:
        return default
    return number if 0 < number < 1e12 else default

# Control charts over log residuals: blocks, detectors, limits, step flags, the gate over a fleet. Steps and
# what was expected of them come in, flags and readings go out; time and seed are data.
from otel_llmprism.baseline.charts.config import ChartConfig, FleetConfig
from otel_llmprism.baseline.charts.engine import EngineCharts
from otel_llmprism.baseline.charts.fleet import FleetGate
from otel_llmprism.baseline.charts.state import ChartStateError

__all__ = ["ChartConfig", "ChartStateError", "EngineCharts", "FleetConfig", "FleetGate"]

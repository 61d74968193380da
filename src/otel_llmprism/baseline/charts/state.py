# Charts as JSON-able values and back, over restarts. Everything read is checked: size, type, finite. What
# does not fit is refused with one line and learned anew. Open blocks and single steps' evidence are lost.
import math

import numpy as np

from otel_llmprism.baseline.charts.alarm import Alarm
from otel_llmprism.baseline.charts.chart import Chart
from otel_llmprism.baseline.charts.history import COLUMNS
from otel_llmprism.baseline.charts.judge import BURDEN, CENTRE, MEMORY
from otel_llmprism.baseline.charts.limits import Limits, Scale
from otel_llmprism.baseline.charts.step_flags import fit_step_limits
from otel_llmprism.model.charts import Series

STATE_VERSION = 1
MAX_CHARTS = 64
MAX_ROWS = 600
MAX_STEPS = 4_096
MAX_COUNT = 2**62
LOOK = 6  # column of the history that may be unknown, as may `within`
WITHIN = 3
SCALARS = 19  # numbers of Limits


class ChartStateError(ValueError):
    """Stored state of charts that cannot be used, said in one line."""


def dump_chart(chart: Chart) -> dict[str, object]:
    rows, residual, spread = chart.history.read_newest(MAX_ROWS, MAX_STEPS)
    alarm = chart.alarm
    sums, values = chart.judge.dump()
    return {
        "series": str(chart.key.series),
        "kind": chart.key.kind,
        "regime": chart.regime,
        "grace": chart.grace,
        "admitted": chart.history.admitted,
        "next_fit": chart.history.next_fit,
        "rows": [write_numbers(list(row)) for row in rows],
        "residual": write_numbers(residual.tolist()),
        "spread": write_numbers(spread.tolist()),
        "sums": [write_numbers(part) for part in sums],
        "values": [write_numbers(part) for part in values],
        "alarm": [int(alarm.is_on), alarm.onset_ns, alarm.channel, alarm.shift, alarm.blocks],
        "limits": None if chart.limits is None else write_limits(chart.limits),
    }


def read_engine_state(state: object) -> tuple[int, int, list[tuple[Series, int, dict[str, object]]]]:
    """Return last step, its time and each chart's state; raises ChartStateError."""
    entry = read_mapping(state)
    version = entry.get("version")
    if version != STATE_VERSION:
        raise ChartStateError(f"charts: version {str(version)[:20]} is not {STATE_VERSION}")
    charts = entry.get("charts")
    if not isinstance(charts, list) or len(charts) > MAX_CHARTS:
        raise ChartStateError(f"charts: must be a list of at most {MAX_CHARTS} charts")
    found = []
    for chart in map(read_mapping, charts):
        if chart.get("series") not in set(Series):
            raise ChartStateError(f"charts: unknown series {str(chart.get('series'))[:20]}")
        found.append((Series(str(chart["series"])), read_count(chart, "kind", 255), chart))
    return (
        read_count(entry, "last_step", MAX_COUNT * 2, -1),
        read_count(entry, "last_ns", MAX_COUNT * 2, -1),
        found,
    )


def restore_chart(chart: Chart, state: dict[str, object]) -> None:
    """Put a dumped state into a fresh chart; raises ChartStateError and leaves the chart unusable."""
    rows = [
        read_numbers(row, COLUMNS, COLUMNS, unknown=(WITHIN, LOOK))
        for row in read_list(state, "rows", MAX_ROWS)
    ]
    residual = read_numbers(state.get("residual"), 0, MAX_STEPS)
    spread = read_numbers(state.get("spread"), len(residual), len(residual))
    if any(value <= 0 for value in spread) or any(row[2] <= 0 for row in rows):
        raise ChartStateError("charts: spreads and counts must be above 0")
    chart.regime = read_count(state, "regime", MAX_COUNT)
    chart.grace = read_count(state, "grace", 1_000_000)
    admitted = read_count(state, "admitted", MAX_COUNT)
    next_fit = read_count(state, "next_fit", MAX_COUNT)
    chart.history.restore(rows, np.array(residual), np.array(spread), admitted, next_fit)
    window = chart.config.window_blocks
    sums = [read_numbers(part, 3, 3 + window) for part in read_list(state, "sums", 2, 2)]
    values = [read_numbers(part, 0, MEMORY) for part in read_list(state, "values", 2, 2)]
    chart.judge.load(sums, values)
    chart.alarm = read_alarm(state)
    if state.get("limits") is not None:
        chart.limits = read_limits(read_numbers(state["limits"], SCALARS, SCALARS))
        chart.flagger.limits = fit_step_limits(np.array(residual), np.array(spread), chart.config)


def write_limits(limits: Limits) -> list[float]:
    scales = [number for scale in limits.scales for number in (scale.centre, scale.base, scale.per_step)]
    sums = [number for channel in limits.sums for number in channel]
    rest = (limits.slack, limits.point, limits.look, limits.top_spread)
    return [*scales, *sums, *rest, limits.low_load, limits.high_load, float(limits.blocks)]


def read_limits(numbers: list[float]) -> Limits:
    centre, burden = Scale(*numbers[0:3]), Scale(*numbers[3:6])
    sums = (numbers[6], numbers[7], numbers[8]), (numbers[9], numbers[10], numbers[11])
    slack, point, look, top_spread, low_load, high_load, blocks = numbers[12:]
    limits = Limits((centre, burden), slack, point, look, sums, top_spread, low_load, high_load, int(blocks))
    bases = [scale.base for scale in limits.scales]
    if (
        min(*sums[0], *sums[1], limits.point, limits.look, *bases) <= 0
        or centre.per_step < 0
        or burden.per_step < 0
    ):
        raise ChartStateError("charts: limits must be above 0")
    return limits


def read_alarm(state: dict[str, object]) -> Alarm:
    is_on, onset_ns, channel, shift, blocks = read_numbers(state.get("alarm"), 5, 5)
    if channel not in {CENTRE, BURDEN} or not 0 <= onset_ns <= MAX_COUNT * 2 or blocks < 0:
        raise ChartStateError("charts: alarm out of range")
    return Alarm(bool(is_on), int(onset_ns), int(channel), float(shift), int(blocks))


def write_numbers(values: list[float]) -> list[float | None]:
    return [None if math.isnan(value) else round(value, 6) for value in values]


def read_mapping(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ChartStateError(f"charts: must be a mapping, not {type(value).__name__}")
    return value


def read_list(state: dict[str, object], name: str, most: int, least: int = 0) -> list[object]:
    value = state.get(name)
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise ChartStateError(f"charts: {name} must be a list of {least} to {most}")
    return value


def read_count(state: dict[str, object], name: str, most: int, least: int = 0) -> int:
    value = state.get(name)
    if type(value) is not int or not least <= value <= most:
        raise ChartStateError(f"charts: {name} must be a whole number from {least} to {most}")
    return value


def read_numbers(value: object, least: int, most: int, unknown: tuple[int, ...] = ()) -> list[float]:
    """Return finite numbers; where `unknown` allows it, None is NaN."""
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise ChartStateError(f"charts: must be a list of {least} to {most} numbers")
    numbers = []
    for place, number in enumerate(value):
        if number is None and place in unknown:
            numbers.append(math.nan)
        elif type(number) in {int, float} and math.isfinite(number) and abs(number) <= MAX_COUNT * 2:
            numbers.append(number)  # whole numbers stay whole: times in ns are beyond a double's digits
        else:
            raise ChartStateError("charts: numbers must be finite")
    return numbers

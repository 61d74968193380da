# What a user may turn on the control charts. Ratios are natural logarithms: 0.05 is 5 % slower.
from dataclasses import dataclass

from otel_llmprism.model.charts import Detector

DAY_BLOCKS = 86_400  # of one second


@dataclass(frozen=True, slots=True)
class ChartConfig:
    """One chart's rules; see docs/adr/0113 and 0114."""

    block_ns: int = 1_000_000_000
    looks_per_block: int = 4  # the open block is looked at so often, each time over two looks' steps
    look_min_steps: int = 4
    min_blocks: int = 30  # out-of-sample blocks before anything alarms or flags
    history_blocks: int = 1_800  # the newest blocks outside alarms that limits come from
    run_length_blocks: float = 30.0 * DAY_BLOCKS  # mean time between false alarms of a chart, busy time
    min_shift: float = 0.05  # smaller shifts are no incidents, however certain
    min_sigma: float = 0.01  # of a block's level; below it noise means nothing beside min_shift
    detectors: tuple[Detector, ...] = tuple(Detector)  # that may alarm; looks belong to the point detector
    window_blocks: int = 5
    ewma_weight: float = 0.2
    cusum_slack: float = 0.5
    clip_z: float = 6.0  # of one block in window, EWMA and CUSUM, so that no single block alarms there
    resample_blocks: int = 20  # length of the moving blocks of the bootstrap
    grace_blocks: int = 5  # left out after a regime change
    hold_blocks: int = 10  # a block waits so long before limits are learned from it
    step_history: int = 8_192
    step_false_rate: float = 0.0004  # of normal steps that may be flagged; below what is promised
    step_shift: float = 0.262  # the slowdown a step is tested for: 1.3 times
    step_hold: float = 4.0  # evidence kept in hand inside an incident: log of its usual length in steps
    step_alarm_hold: float = 8.0  # the same while the chart is in alarm


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """How many false alarms a fleet may admit; see docs/adr/0115."""

    false_discovery_rate: float = 0.01
    horizon_blocks: float = 1.0 * DAY_BLOCKS
    run_length_blocks: float = 30.0 * DAY_BLOCKS
    block_ns: int = 1_000_000_000
    max_charts: int = 100_000

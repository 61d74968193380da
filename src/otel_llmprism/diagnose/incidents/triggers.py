# When an incident may open, by the design's rule: a chart alarms and 5 % of busy time is lost over ten
# seconds; or one step takes far too long; or work in flight has produced nothing for long.
from collections.abc import Iterator
from dataclasses import dataclass

from otel_llmprism.diagnose.facts.bins import BIN_NS
from otel_llmprism.diagnose.facts.chart_notes import Alarm
from otel_llmprism.diagnose.facts.engine import EngineFacts
from otel_llmprism.diagnose.facts.reference import Reference
from otel_llmprism.diagnose.incidents.excess import Excess, measure_excess
from otel_llmprism.diagnose.kinds import Domain
from otel_llmprism.diagnose.settings import S_NS, DiagnosisConfig
from otel_llmprism.model.charts import Series

_FRESH_NS = 3 * S_NS  # an alarm that is not repeated for longer is over
_MAX_ONSET_NS = 60 * S_NS
_FULL_CACHE, _PREEMPTIONS_PER_S = 0.9, 0.5
_SERIES = {
    Domain.STEPS: (Series.CYCLE, Series.GAP),
    Domain.FRONT_END: (Series.UNEXPLAINED,),
    Domain.QUEUE: (Series.QUEUE,),
}


@dataclass(frozen=True, slots=True)
class Trigger:
    """`is_over`: the opening rule holds. Without it the limits are crossed, which keeps an incident open."""

    domain: Domain
    onset_ns: int
    end_ns: int
    shift: float  # log ratio
    excess: Excess
    is_over: bool
    is_single: bool = False


def find_triggers(facts: EngineFacts, config: DiagnosisConfig, now_ns: int) -> Iterator[Trigger]:
    """Yield what is beyond its limits now; at most one for each domain."""
    silence = _find_silence(facts, config, now_ns)
    if silence is not None:
        yield silence
        return  # the charts stand still
    for domain in _SERIES:
        trigger = _find_charted(facts, config, domain)
        if trigger is not None:
            yield trigger


def _find_charted(facts: EngineFacts, config: DiagnosisConfig, domain: Domain) -> Trigger | None:
    if domain is not Domain.STEPS and not facts.charts.has_limits():
        return None  # whose victims requests are, only steps with limits can tell
    alarm = _find_alarm(facts, domain)
    onset_ns = _find_onset(facts, domain, alarm)
    single_ns = _find_single(facts, config) if domain is Domain.STEPS else 0
    end_ns = facts.newest_ns
    if not onset_ns and not single_ns:
        return None
    first_ns = min(at for at in (onset_ns, single_ns) if at)
    reference = Reference(first_ns, facts.unhealthy, facts.kept_normals)
    window_ns = int(config.excess_window_s * S_NS)
    excess = measure_excess(
        facts, domain, reference, max(first_ns, end_ns - window_ns), end_ns, window_ns=window_ns
    )
    is_over = bool(onset_ns) and excess.share >= config.min_excess_share
    if domain is Domain.QUEUE:
        is_over = is_over and _is_lasting(facts, reference, int(config.overload_s * S_NS))
    shift = alarm.reading.shift if alarm is not None else 0.0
    return Trigger(
        domain, first_ns, end_ns, shift, excess, is_over or bool(single_ns), bool(single_ns) and not is_over
    )


def _find_alarm(facts: EngineFacts, domain: Domain) -> Alarm | None:
    """Return the strongest alarm that still stands."""
    standing = [
        alarm
        for key, alarm in facts.charts.alarms.items()
        if key.series in _SERIES[domain]
        and alarm.reading.is_alarm
        and alarm.end_ns >= facts.newest_ns - _FRESH_NS
    ]
    return max(standing, key=lambda alarm: alarm.reading.score, default=None)


def _find_onset(facts: EngineFacts, domain: Domain, alarm: Alarm | None) -> int:
    """Return since when the limits are crossed, 0 if they are not."""
    if alarm is not None:
        return max(alarm.onset_ns, facts.newest_ns - _MAX_ONSET_NS)
    if domain is Domain.QUEUE:
        # Requests that are put back are scheduled for the first time no more: no chart of queues sees them.
        begin_ns, end_ns = facts.newest_ns - 5 * S_NS, facts.newest_ns
        span_s = facts.bins.sum_between("busy_s", begin_ns, end_ns)
        put_back = facts.bins.sum_between("preemptions", begin_ns, end_ns)
        filled = facts.bins.sum_between("kv_s", begin_ns, end_ns)
        if span_s > 0 and put_back >= 5 * _PREEMPTIONS_PER_S and filled >= _FULL_CACHE * span_s:
            return begin_ns
    return 0


def _find_single(facts: EngineFacts, config: DiagnosisConfig) -> int:
    """Return when a step began that took far too long, 0 if none did since the last look."""
    if not facts.charts.has_limits():
        return 0
    for slow in facts.slow:
        limit_s = max(config.single_step_ratio * slow.expected_s, config.single_step_s)
        if slow.is_flagged and slow.cycle_s > limit_s:
            return slow.time_ns - int(slow.cycle_s * S_NS)
    return 0


def _is_lasting(facts: EngineFacts, reference: Reference, for_ns: int) -> bool:
    """Return whether more requests than usual waited in each of the last seconds, and do not drain."""
    normal = reference.read_rate(facts.bins, "waiting_s")
    usual = normal.centre + 3 * normal.spread if normal.count else 0.0
    end_ns = facts.newest_ns - BIN_NS
    seconds = [
        facts.bins.sum_between("waiting_s", at - S_NS, at)
        for at in range(end_ns - for_ns + S_NS, end_ns + 1, S_NS)
    ]
    return bool(seconds) and min(seconds) > usual + 0.5 and seconds[-1] >= 0.5 * max(seconds)


def _find_silence(facts: EngineFacts, config: DiagnosisConfig, now_ns: int) -> Trigger | None:
    """Return that work is in flight and nothing came out for long.

    Only while something else is still heard of the engine: when nothing is, its exporter is gone, not its
    output. A training that evaluates is silent too, and says so only afterwards: it never hangs for us.
    """
    if not facts.last_output_ns or facts.is_training:
        return None
    end_ns = min(now_ns, facts.heard_ns)
    silent_s = (end_ns - facts.last_output_ns) / S_NS
    expected_s = facts.last_expected_s if facts.last_expected_s > 0 else 0.0
    if silent_s <= max(config.hang_s, config.single_step_ratio * expected_s):
        return None
    in_flight = facts.requests.count_in_flight(facts.last_people, facts.last_schedule_ns)
    if not in_flight:
        return None
    excess = Excess(silent_s, silent_s * in_flight, 1.0)
    return Trigger(Domain.SILENCE, facts.last_output_ns, end_ns, 0.0, excess, is_over=True)

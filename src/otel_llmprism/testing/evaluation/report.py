# What an evaluation found, as tables for docs/evaluation.md: scores in, Markdown out. Pure.
import math
from collections.abc import Iterable, Sequence
from statistics import median

from otel_llmprism.testing.evaluation.fault_kinds import KINDS
from otel_llmprism.testing.evaluation.finding_truth import Outcome
from otel_llmprism.testing.evaluation.intervals import bound_rate, bound_share, score_f1
from otel_llmprism.testing.evaluation.judge_recording import FlagScore, RecordingScore
from otel_llmprism.testing.evaluation.live import LiveOutcome
from otel_llmprism.testing.evaluation.step_truth import Counted

_DAY_S = 86_400.0
_LEAST = 1.2  # below, a fault adds less than what makes a step abnormal
_CLEAR = 1.9  # from here on a fault must be named


def write_tables(scores: Sequence[RecordingScore]) -> str:
    """Return all tables."""
    outcomes = [outcome for score in scores for outcome in score.outcomes]
    parts = (
        ("Step flags", _tell_flags(scores)),
        ("Findings by intensity", _tell_recall(outcomes)),
        ("Root cause, faults of 2x and more", _tell_causes(outcomes)),
        ("Findings while nothing was wrong", _tell_false(scores)),
    )
    return "\n".join(f"### {title}\n\n{text}\n" for title, text in parts)


def _tell_flags(scores: Iterable[RecordingScore]) -> str:
    flags = [flag for score in scores for flag in score.flags]
    if not flags:
        return "No fault here has a delay that its injector books."
    rows = []
    for kind in sorted({flag.kind for flag in flags}):
        for intensity in sorted({flag.intensity for flag in flags if flag.kind == kind}):
            own = [flag for flag in flags if (flag.kind, flag.intensity) == (kind, intensity)]
            rows.append([kind, f"{intensity:g}x", *_tell_flag_group(own)])
    rows.append(
        ["**all**", "1.3x and more", *_tell_flag_group([one for one in flags if one.intensity > _LEAST])]
    )
    head = ("fault", "intensity", "abnormal / normal steps (prevalence)")
    return build_table((*head, "false-positive rate", "F1", "F1 of the oracle", "lag, median steps"), rows)


def _tell_flag_group(flags: Sequence[FlagScore]) -> list[str]:
    counted = sum((flag.counted for flag in flags), Counted())
    oracle = sum((flag.oracle for flag in flags), Counted())
    known = [flag.lag for flag in flags if math.isfinite(flag.lag)]
    return [*_tell_counted(counted), _f1(oracle), f"{median(known):g}" if known else "-"]


def _tell_counted(counted: Counted) -> list[str]:
    total = max(counted.normal + counted.abnormal, 1)
    steps = f"{counted.abnormal} / {counted.normal} ({counted.abnormal / total:.1%})"
    low, high = bound_share(counted.false_flags, counted.normal)
    rate = counted.false_flags / counted.normal if counted.normal else math.nan
    return [steps, f"{rate:.3%} ({low:.3%} to {high:.3%})", _f1(counted)]


def _f1(counted: Counted) -> str:
    return f"{score_f1(counted.hits, counted.misses, counted.false_flags):.4f}"


def _tell_recall(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for kind, intensity in sorted({(one.kind, one.intensity) for one in outcomes}):
        own = [one for one in outcomes if (one.kind, one.intensity) == (kind, intensity)]
        within = [sum(one.delay_s <= limit for one in own) for limit in (2.0, 10.0)]
        delays = [one.delay_s for one in own if one.is_found]
        middle = f"{median(delays):.1f} s (most {max(delays):.1f} s)" if delays else "-"
        shares = [tell_share(hits, len(own)) for hits in (*within, len(delays))]
        rows.append([kind, f"{intensity:g}x", str(len(own)), middle, *shares])
    head = ("fault", "intensity", "incidents", "delay, median", "within 2 s", "within 10 s", "found at all")
    return build_table(head, rows)


def _tell_causes(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for kind in sorted({one.kind for one in outcomes}):
        own = [one for one in outcomes if one.kind == kind and one.intensity >= _CLEAR]
        first = sum(one.right_place == 1 for one in own)
        among = sum(1 <= one.right_place <= 3 for one in own)
        accepted = " or ".join(f"`{name}`, {subject}" for name, subject in KINDS[kind].accepted)
        shares = [tell_share(first, len(own)), tell_share(among, len(own))]
        rows.append([kind, accepted, str(len(own)), *shares, _tell_wrong(own)])
    head = ("fault", "accepted", "runs", "first", "among the first three", "first instead")
    return build_table(head, rows)


def _tell_wrong(outcomes: Iterable[Outcome]) -> str:
    wrong = [one.ranked[0] if one.ranked else "nothing" for one in outcomes if one.right_place != 1]
    counts = {name: wrong.count(name) for name in sorted(set(wrong))}
    return ", ".join(f"{count}x {name}" for name, count in counts.items()) or "-"


def _tell_false(scores: Sequence[RecordingScore]) -> str:
    seconds, steps = sum(score.quiet_s for score in scores), sum(score.quiet_steps for score in scores)
    false = [name for score in scores for name in score.false_findings]
    days = seconds / _DAY_S
    text = (
        f"{len(false)} in {steps} steps and {days:.3f} engine-days; 95 % upper bound "
        f"{bound_rate(len(false), days):.1f} an engine-day."
    )
    counts = {name: false.count(name) for name in sorted(set(false))}
    return text + "".join(f"\n- {count}x {name}" for name, count in counts.items())


def tell_live(outcomes: Sequence[LiveOutcome]) -> str:
    """Return a table of what was seen through the real path."""
    rows = []
    for kind, intensity in sorted({(one.kind, one.intensity) for one in outcomes}):
        own = [one for one in outcomes if (one.kind, one.intensity) == (kind, intensity)]
        found = [one for one in own if math.isfinite(one.opened_s)]
        delays = ["-", "-"]
        if found:
            delays = [
                f"{median(getattr(one, name) for one in found):.1f} s" for name in ("opened_s", "seen_s")
            ]
        right = tell_share(sum(one.is_right for one in own), len(own))
        rows.append([kind, f"{intensity:g}x", tell_share(len(found), len(own)), *delays, right])
    head = ("fault", "intensity", "found", "onset to open", "onset to the query API", "first one right")
    return build_table(head, rows)


def tell_share(hits: int, of: int) -> str:
    low, high = bound_share(hits, of)
    return f"{hits}/{of} ({low:.0%} to {high:.0%})"


def build_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

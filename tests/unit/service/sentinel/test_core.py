# The core in data time: what it finds, what it learns from, and what no input makes it do.
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from otel_llmprism.model.findings import Finding, FindingState
from otel_llmprism.native.ring_codes import Mode
from otel_llmprism.receivers.ledger import LedgerSource
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.service.sentinel.model_book import StoredModel
from otel_llmprism.testing.made_ledger import START_NS, START_REAL_NS, MadeLedger, Slow

RUN = "cd" * 16


def list_states(findings: list[Finding]) -> list[FindingState]:
    return [finding.state for finding in findings]


def test_a_quiet_engine_has_a_model_and_no_finding(bench: Any) -> None:
    heard = bench.play(MadeLedger(seconds=120))
    assert heard.findings == []
    assert [fitted.is_first for fitted in heard.fitted][:1] == [True]
    assert bench.core.watches.list_watches()[0].model.current is not None
    assert bench.counters.value(LOST, stage="sentinel", cause="failed") == 0


def test_a_slow_engine_is_found_within_seconds_and_let_go_again(bench: Any) -> None:
    heard = bench.play(MadeLedger(seconds=260, slow=(Slow(120, 150, 2.0),)))
    states = list_states(heard.findings)
    assert states[0] is FindingState.OPEN
    assert states[-1] is FindingState.CLOSED
    opened = heard.findings[0]
    assert 0 < opened.opened_ns - (START_REAL_NS + 120 * 10**9) < 3 * 10**9
    assert len({finding.id for finding in heard.findings}) == 1


def test_the_same_ledger_gives_the_same_again(build_bench: Callable[[], Any]) -> None:
    ledger = MadeLedger(seconds=150, slow=(Slow(120, 150, 2.0),))
    assert build_bench().play(ledger).findings == build_bench().play(ledger).findings


def test_a_backlog_is_judged_in_its_own_time(bench: Any) -> None:
    ledger = MadeLedger(seconds=150, slow=(Slow(120, 150, 2.0),))
    late_ns = START_REAL_NS + 3_600 * 10**9  # all of it arrives an hour later, within a second
    findings = []
    for number, (batch, _) in enumerate(ledger.list_batches()):
        arrived_ns = late_ns + number * 1_000_000
        for news in (bench.core.take(batch, arrived_ns), bench.core.advance(arrived_ns)):
            findings += news.findings
    assert [finding.kind for finding in findings[:1]] == ["step_regression"]
    assert findings[0].opened_ns < START_REAL_NS + 150 * 10**9


def test_steps_inside_a_finding_teach_nothing(bench: Any) -> None:
    ledger = MadeLedger(seconds=180, slow=(Slow(120, 180, 2.0),))
    bench.play(ledger)
    (watch,) = bench.core.watches.list_watches()
    before = int(np.sum(ledger.make_steps().output_ready_ns < START_NS + 120 * 10**9))
    assert watch.is_blocked
    assert 0.9 * before < watch.model.learned <= before


def test_a_finding_goes_on_under_its_id_after_a_restart(build_bench: Callable[[], Any]) -> None:
    first, second = build_bench(), build_bench()
    before = first.play(MadeLedger(seconds=150, slow=(Slow(120, 150, 2.0),)))
    second.core.models.adopt(_to_stored(before.fitted[-1]))
    second.core.restore(first.core.dump(), before.findings[-1:])
    steps = first.core.watches.list_watches()[0].steps_seen
    after = second.play(MadeLedger(seconds=90, first_step=steps, start_s=150.0, seed=3))
    assert {finding.id for finding in after.findings} == {before.findings[0].id}
    assert after.findings[-1].state is FindingState.CLOSED


def test_damaged_state_is_passed_over(bench: Any) -> None:
    for state in ({}, {"findings": 3}, {"findings": {"version": 99}, "engines": {"a": {"charts": 1}}}, [1]):
        bench.core.restore(state, [])
    assert bench.play(MadeLedger(seconds=70)).fitted


def test_only_so_many_engines_are_watched(bench: Any) -> None:
    bench.core.watches._max_engines = 3
    for number in range(6):
        bench.play(MadeLedger(source=LedgerSource(f"engine-{number}", RUN, "n"), seconds=2))
    watched = [watch.source.engine_id for watch in bench.core.watches.list_watches()]
    assert watched == ["engine-3", "engine-4", "engine-5"]


def test_a_new_run_takes_the_place_of_the_old_one_and_keeps_the_model(bench: Any) -> None:
    bench.play(MadeLedger(seconds=70))
    bench.play(MadeLedger(source=LedgerSource("made-engine", RUN, "node-0"), seconds=5, start_s=80.0))
    (watch,) = bench.core.watches.list_watches()
    assert watch.source.run == RUN
    assert watch.model.current is not None


def test_a_repeated_batch_is_counted_and_charted_once(bench: Any) -> None:
    batch, arrived_ns = next(MadeLedger(seconds=1).list_batches())
    bench.core.take(batch, arrived_ns)
    again = bench.core.take(batch, arrived_ns)
    assert len(again.batches[0].scored) == 0
    assert bench.counters.value(LOST, stage="sentinel", cause="late") == len(batch.tables.steps)


def make_chance(count: int) -> Any:
    return np.random.default_rng(1).integers(0, 2**63, count, np.uint64)


def change_steps(ledger: MadeLedger, **columns: Callable[[Any], Any]) -> list[Any]:
    changed = []
    for batch, arrived_ns in ledger.list_batches():
        own = {name: change(getattr(batch.tables.steps, name)) for name, change in columns.items()}
        steps = replace(batch.tables.steps, **own)
        changed.append((replace(batch, tables=replace(batch.tables, steps=steps)), arrived_ns))
    return changed


BAD_INPUTS: dict[str, list[Any]] = {
    "constant cycles": change_steps(MadeLedger(seconds=80), cycle_ns=lambda own: np.full_like(own, 10**7)),
    "two values": change_steps(
        MadeLedger(seconds=80), cycle_ns=lambda own: np.where(np.arange(len(own)) % 2, 10**7, 2 * 10**7)
    ),
    "cycles of zero": change_steps(MadeLedger(seconds=5), cycle_ns=np.zeros_like),
    "nothing known": change_steps(
        MadeLedger(seconds=5),
        **dict.fromkeys(
            ("cycle_ns", "gap_ns", "kv_tokens", "output_ready_ns"), lambda own: np.full_like(own, 2**64 - 1)
        ),
    ),
    "clock back by a day": change_steps(MadeLedger(seconds=5), output_ready_ns=lambda own: own // 2),
    "clock at the end of time": change_steps(
        MadeLedger(seconds=5), output_ready_ns=lambda own: own + np.uint64(2**62)
    ),
    "kinds of nobody": change_steps(MadeLedger(seconds=5), kind=lambda own: np.full_like(own, 77)),
    "steps of chance": change_steps(
        MadeLedger(seconds=5),
        step=lambda own: make_chance(len(own)),
    ),
    "deep-dives only": change_steps(MadeLedger(seconds=80), mode=lambda own: np.full_like(own, Mode.DEEP)),
    "a million a minute": list(MadeLedger(seconds=6, base_ns=60_000).list_batches()),
    "one an hour": list(MadeLedger(seconds=36_000, base_ns=3.3e12).list_batches()),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_bad_input_ends_nothing(bench: Any, name: str) -> None:
    for batch, arrived_ns in BAD_INPUTS[name]:
        bench.core.take(batch, arrived_ns)
        bench.core.advance(arrived_ns)
    assert bench.counters.value(LOST, stage="sentinel", cause="failed") == 0
    heard = bench.play(MadeLedger(source=LedgerSource("another", RUN, "n"), seconds=70))
    assert [fitted.engine_id for fitted in heard.fitted] == ["another"]


def test_arrivals_by_a_clock_that_jumps_end_nothing(bench: Any) -> None:
    jumps = np.random.default_rng(2).integers(-(10**18), 10**18, 1000).tolist()
    for (batch, arrived_ns), jump in zip(MadeLedger(seconds=60).list_batches(), jumps, strict=False):
        bench.core.take(batch, max(0, arrived_ns + jump))
        bench.core.advance(max(0, arrived_ns - jump))
    assert bench.counters.value(LOST, stage="sentinel", cause="failed") == 0


def _to_stored(fitted: Any) -> Any:
    return StoredModel(fitted.engine_id, fitted.peers, fitted.trained_steps, fitted.raw)

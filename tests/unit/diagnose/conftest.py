# A made-up engine on a made-up host: steps, requests, host samples and chart readings of a fault, by its own
# arithmetic. It knows nothing of how causes are found; its numbers are those of a small machine.
from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from otel_llmprism.diagnose import Diagnosis, DiagnosisConfig, SourceKey
from otel_llmprism.model.charts import ChartKey, ChartReading, Detector, Series
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.findings import Finding, FindingState
from otel_llmprism.model.hosts import NO_RANK, HostTables, SampleTable, SeriesTable
from otel_llmprism.model.steps import (
    UNKNOWN,
    ArrivalTable,
    CollectiveTable,
    EndTable,
    EventTable,
    IdentityTable,
    LedgerTables,
    MemberTable,
    PauseTable,
    PhaseTable,
    RankTable,
    RunningTable,
    StepTable,
)
from otel_llmprism.model.work import ScoredTable
from otel_llmprism.native.ring_codes import RequestEvent, StepKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

S = 1_000_000_000
EPOCH = 1_700_000_000 * S
Rows = list[dict[str, Any]]


def build_table(
    table: type[Any], rows: list[dict[str, float]], defaults: dict[str, float] | None = None
) -> Any:
    """Return a table of these rows; what a row lacks is 0."""
    columns = []
    for one in fields(table):
        dtype = one.type.__args__[1].__args__[0]  # type: ignore[union-attr]
        columns.append(np.array([row.get(one.name, 0) for row in rows], dtype=dtype))
    return table(*columns)


@dataclass
class Fault:
    """What goes wrong between two times of the scene, in seconds; `size`: how many times as long."""

    name: str
    begin_s: float
    end_s: float
    size: float
    rank: int = 0
    told: bool = True  # by the control group

    def is_on(self, at_s: float) -> bool:
        return self.begin_s <= at_s < self.end_s


@dataclass
class Scene:
    """One engine; `play` yields what it tells, batch by batch, as (now_ns, tell)."""

    seed: int = 0
    engine_id: str = "engine-a"
    run: str = "0" * 32
    node: str = "host-a"
    ranks: int = 1
    cores: float = 8.0
    step_s: float = 0.03
    faults: list[Fault] = field(default_factory=list)
    load: Callable[[float], float] = lambda _at: 1.0
    has_host: bool = True
    is_training: bool = False
    watch_every: int = 10
    limits_from_s: float = 10.0
    alarms: bool = True
    gpu: str = ""
    shared_noise: float = 0.03

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.mono0 = int(self.rng.integers(10**12, 10**14))
        self.anchor = Anchor(self.mono0, EPOCH)
        self.source = SourceKey(self.engine_id, self.run, self.node)
        self.step = 0
        self.handle = 1
        self.living: list[tuple[int, float]] = []  # handle, end by time
        self.queue: list[tuple[int, float]] = []
        self.sums: dict[tuple[int, str], float] = {}
        self.host_phase = float(self.rng.uniform(0.05, 0.95))
        self.levels: dict[tuple[Series, int], list[float]] = {}
        self.onsets: dict[tuple[Series, int], float] = {}

    def mono(self, at_s: float) -> int:
        return self.mono0 + int(at_s * S)

    def size_of(self, name: str, at_s: float, rank: int | None = None) -> float:
        return max(
            (f.size for f in self.faults if f.name == name and f.is_on(at_s) and rank in {None, f.rank}),
            default=1.0,
        )

    def add(self, name: str, amount: float, pid: int = 0) -> None:
        self.sums[pid, name] = self.sums.get((pid, name), 0.0) + amount

    # --- one step -----------------------------------------------------------------------------------------
    def own_time(self, at_s: float, rank: int, expected: float) -> float:
        """Return a rank's own time and book what its host counts meanwhile."""
        usual = (expected * (0.9 if self.ranks > 1 else 0.95) - 0.002 * self.is_training) * float(
            np.exp(self.rng.normal(0, self.shared_noise))
        )
        own = usual
        pid = 100 + rank
        thread = f"{pid}/worker"
        wait = usual * float(self.rng.uniform(0.002, 0.01))
        for fault in (f for f in self.faults if f.is_on(at_s)):
            extra = usual * (fault.size - 1)
            if fault.name in {"burn", "squeeze"}:
                own += extra
                wait += extra * float(self.rng.uniform(0.85, 1.0))
                if fault.name == "burn":
                    self.add("others", extra * float(self.rng.uniform(1.0, 1.6)))
            elif fault.name in {"throttle", "throttle_rank"} and (
                fault.name == "throttle" or rank == fault.rank
            ):
                own += extra
                wait += extra * float(self.rng.uniform(0.85, 1.0))
                if fault.told:
                    of = pid if fault.name == "throttle_rank" else 0
                    self.add("cgroup.cpu.throttled_s", extra * float(self.rng.uniform(0.6, 1.0)), of)
                    self.add("cgroup.cpu.nr_throttled", extra * 10, of)
            elif fault.name == "squeeze_rank" and rank == fault.rank:
                own += extra
                wait += extra * 0.95
                self.add(f"process.thread.cpu_s/{pid + 1000}/helper", extra, pid)
                self.add("process.cpu_s/user", extra, pid)
            elif fault.name == "memory":
                own += extra
                self.add("system.pressure_s/memory/some", extra * float(self.rng.uniform(0.6, 1.0)))
                self.add("system.memory_events/pgmajfault", extra * float(self.rng.uniform(200, 900)))
                self.add("others", extra * 0.2)
                wait += extra * 0.1
            elif (
                fault.name == "operator"
                or (fault.name == "slow_rank" and rank == fault.rank)
                or fault.name == "gpu_clock"
            ):
                own += extra
        if any(f.name == "squeeze" and f.is_on(at_s) for f in self.faults):
            self.add(f"process.thread.cpu_s/{pid + 1000}/helper", own, pid)  # who has the core meanwhile
            self.add("process.cpu_s/user", own - usual, pid)
        self.add(f"process.thread.cpu_s/{thread}", usual, pid)
        self.add("process.cpu_s/user", usual, pid)
        self.add(f"process.thread.wait_s/{thread}", wait, pid)
        return own

    def make_step(self, at_s: float) -> dict[str, Any]:
        load = self.load(at_s)
        batch = max(1, int(self.rng.normal(12, 2) * load))
        expected = self.step_s * (0.6 + 0.4 * batch / 12) * float(np.exp(self.rng.normal(0, 0.02)))
        delay = 0.0
        schedule = 0.0004 * (1 + 0.02 * batch)
        gap = float(self.rng.exponential(0.0001))
        data = 0.002 if self.is_training else 0.0
        for fault in (f for f in self.faults if f.is_on(at_s)):
            extra = expected * (fault.size - 1)
            schedule += extra if fault.name == "scheduler" else 0.0
            gap += extra if fault.name == "gap" else 0.0
            data += extra if fault.name == "data" else 0.0
            delay += extra if fault.name == "one_noisy_step" else 0.0
            schedule += 0.2 * extra if fault.name in {"burn", "throttle"} else 0.0
            gap += 0.1 * extra if fault.name in {"burn", "throttle"} else 0.0
        owns = [self.own_time(at_s, rank, expected) + data for rank in range(self.ranks)]
        exchange = expected * 0.06 * float(np.exp(self.rng.normal(0, 0.1))) if self.ranks > 1 else 0.0
        exchange += expected * (self.size_of("link", at_s) - 1)
        cycle = schedule + max(owns) + exchange + 0.0003 + delay
        self.step += 1
        return {
            "at": at_s + gap,
            "gap": gap,
            "schedule": schedule,
            "owns": owns,
            "exchange": exchange,
            "cycle": cycle,
            "expected": expected,
            "batch": batch,
            "step": self.step - 1,
            "data": data,
            "kind": StepKind.TRAIN if self.is_training else StepKind.DECODE,
        }

    # --- requests -----------------------------------------------------------------------------------------
    def make_requests(self, begin_s: float, end_s: float) -> tuple[Rows, Rows, Rows]:
        arrivals: Rows = []
        events: Rows = []
        ends: Rows = []
        count = int(self.rng.poisson(25 * self.load(begin_s) * (end_s - begin_s)))
        for at in np.sort(self.rng.uniform(begin_s, end_s, count)):
            hold = float(self.rng.exponential(0.0008)) + 0.0005
            if (size := self.size_of("front_end", at)) > 1:
                hold += 0.08 * (size - 1)
            queued = at + hold
            arrivals.append({"handle": self.handle, "arrival_ns": self.mono(at)})
            events.append({"handle": self.handle, "time_ns": self.mono(queued), "event": RequestEvent.QUEUED})
            wait = float(self.rng.exponential(0.004))
            events.append(
                {"handle": self.handle, "time_ns": self.mono(queued + wait), "event": RequestEvent.SCHEDULED}
            )
            self.living.append((self.handle, queued + wait + float(self.rng.uniform(0.3, 0.9))))
            self.handle += 1
        done = [one for one in self.living if one[1] < end_s]
        self.living = [one for one in self.living if one[1] >= end_s]
        for handle, at in done:
            ends.append({"handle": handle, "time_ns": self.mono(at)})
            events.append(
                {"handle": handle, "time_ns": self.mono(at + 0.001), "event": RequestEvent.RESPONDED}
            )
        return arrivals, events, ends

    # --- tables -------------------------------------------------------------------------------------------
    def build_batch(
        self, made: list[dict[str, Any]], begin_s: float, end_s: float
    ) -> tuple[LedgerTables, ScoredTable]:
        arrivals, events, ends = self.make_requests(begin_s, end_s)
        waiting = {id(one): self.count_waiting(one["at"]) for one in made}
        steps = [
            {
                "step": one["step"],
                "schedule_start_ns": self.mono(one["at"]),
                "schedule_end_ns": self.mono(one["at"] + one["schedule"]),
                "output_ready_ns": self.mono(one["at"] + one["cycle"]),
                "cycle_ns": int(one["cycle"] * S),
                "execute_ns": int(max(one["owns"]) * S),
                "sample_ns": 200_000,
                "output_ns": 100_000,
                "gap_ns": int(one["gap"] * S),
                "kept_probability": 1,
                "kv_tokens": one["batch"] * 700,
                "requests": one["batch"],
                "decode_tokens": one["batch"],
                "running": one["batch"],
                "waiting": waiting[id(one)],
                "preemptions": self.count_preemptions(one["at"]),
                "kv_usage": self.read_cache(one["at"]),
                "kind": one["kind"],
                "flags": 1,
            }
            for one in made
        ]
        ranks, collectives, phases = self.build_ranks(made)
        nothing: list[dict[str, float]] = []
        tables = LedgerTables(
            steps=build_table(StepTable, steps),
            identities=build_table(IdentityTable, [{"rank": r, "tp": r} for r in range(self.ranks)]),
            ranks=build_table(RankTable, ranks),
            members=build_table(MemberTable, nothing),
            running=build_table(RunningTable, nothing),
            arrivals=build_table(ArrivalTable, arrivals),
            events=build_table(EventTable, events),
            ends=build_table(EndTable, ends),
            text=np.zeros(0, dtype=np.uint8),
            pauses=build_table(PauseTable, nothing),
            collectives=build_table(CollectiveTable, collectives),
            phases=build_table(PhaseTable, phases),
        )
        scored = [
            {
                "step": one["step"],
                "time_ns": self.mono(one["at"] + one["cycle"]),
                "kind": one["kind"],
                "cycle_ns": int(one["cycle"] * S),
                "expected_ns": one["expected"] * S,
                "residual": math.log(one["cycle"] / one["expected"]),
                "spread": 0.05,
                "is_known": 1,
                "is_flagged": one["cycle"] > 1.2 * one["expected"],
            }
            for one in made
        ]
        return tables, build_table(ScoredTable, scored)

    def build_ranks(self, made: list[dict[str, Any]]) -> tuple[Rows, Rows, Rows]:
        ranks: Rows = []
        collectives: Rows = []
        phases: Rows = []
        for row, one in enumerate(made):
            begin = one["at"] + one["schedule"]
            last = begin + max(one["owns"])
            is_watched = one["step"] % self.watch_every == 0 and self.ranks > 1
            for rank, own in enumerate(one["owns"]):
                end = last + one["exchange"]
                wait = end - (begin + own)
                ranks.append(
                    {
                        "step_row": row,
                        "identity_row": rank,
                        "start_ns": self.mono(begin),
                        "end_ns": self.mono(end),
                        "device_ns": UNKNOWN,
                        "wait_ns": int(wait * S) if self.ranks > 1 else 0,
                    }
                )
                if is_watched:
                    collectives.append(
                        {
                            "step_row": row,
                            "rank": rank,
                            "group": 77,
                            "seq": 0,
                            "op": 1,
                            "bytes": 4096,
                            "start_ns": self.mono(begin + own),
                            "end_ns": self.mono(end),
                            "device_ns": UNKNOWN,
                        }
                    )
                if self.is_training:
                    phases.append(
                        {
                            "step_row": row,
                            "rank": rank,
                            "iteration": one["step"],
                            "data_ns": int(one["data"] * S),
                            "forward_ns": int(own / 3 * S),
                            "backward_ns": int(own / 2 * S),
                            "micro_batches": 1,
                        }
                    )
        return ranks, collectives, phases

    def count_waiting(self, at_s: float) -> int:
        for fault in self.faults:
            if fault.name in {"overload", "small_cache"} and fault.is_on(at_s):
                return int(3 + (at_s - fault.begin_s) * 4 * (fault.size - 1))
            if fault.name == "burst" and fault.is_on(at_s):
                return int(max(0.0, 12 - 6 * (at_s - fault.begin_s)))
        return 0

    def count_preemptions(self, at_s: float) -> int:
        return int(self.size_of("small_cache", at_s) > 1 and self.rng.random() < 0.1)

    def read_cache(self, at_s: float) -> float:
        if self.size_of("small_cache", at_s) > 1:
            return float(self.rng.uniform(0.95, 1.0))
        return float(self.rng.uniform(0.3, 0.5)) + (0.15 if self.size_of("overload", at_s) > 1 else 0.0)

    # --- host ---------------------------------------------------------------------------------------------
    def sample_host(self, at_s: float) -> HostTables:
        """Return one look; what others of the host do on their own is added here."""
        self.add("others", float(self.rng.uniform(0.2, 0.4)))
        for fault in self.faults:
            if fault.name == "busy_host" and fault.is_on(at_s):
                self.add("others", fault.size)
        own = sum(value for (pid, name), value in self.sums.items() if name == "process.cpu_s/user")
        others = self.sums[0, "others"]
        busy = own + others
        rows: list[tuple[int, int, str, float]] = [
            (0, NO_RANK, "system.cpu.time_s/user", round(busy, 2)),
            (0, NO_RANK, "system.cpu.time_s/idle", round(self.cores * (at_s + 5) - busy, 2)),
            (0, NO_RANK, "system.tasks_running", 2.0),
        ]
        rows += [
            (0, NO_RANK, name, self.sums.get((0, name), 0.0))
            for name in ("system.pressure_s/memory/some", "system.memory_events/pgmajfault")
        ]
        if any(f.told for f in self.faults) or not self.faults:
            rows += [
                (0, NO_RANK, name, math.floor(100 * self.sums.get((0, name), 0.0)) / 100)
                for name in ("cgroup.cpu.throttled_s", "cgroup.cpu.nr_throttled")
            ]
        for (pid, name), value in self.sums.items():
            if name.startswith("process.") or (pid and name.startswith("cgroup.")):
                rows.append((pid, pid - 100, name, value))
        if self.gpu:
            slower = self.size_of("gpu_clock", at_s)
            rows.append((0, NO_RANK, f"llmprism.gpu.clock/{self.gpu}/sm", 1.9e9 / slower))
            rows.append((0, NO_RANK, f"llmprism.gpu.throttled/{self.gpu}/thermal", float(slower > 1)))
            rows.append((0, NO_RANK, f"hw.gpu.utilization/{self.gpu}/general", 0.8))
        names = [name.encode() for _, _, name, _ in rows]
        return HostTables(
            SeriesTable(
                np.array([row[0] for row in rows], dtype=np.uint32),
                np.array([row[1] for row in rows], dtype=np.uint32),
                np.array([len(name) for name in names], dtype=np.uint16),
            ),
            SampleTable(
                np.arange(len(rows), dtype=np.uint32),
                np.full(len(rows), self.mono(at_s), dtype=np.uint64),
                np.array([row[3] for row in rows], dtype=np.float64),
            ),
            np.frombuffer(b"".join(names), dtype=np.uint8),
        )

    # --- charts -------------------------------------------------------------------------------------------
    def read_charts(self, made: list[dict[str, Any]], end_s: float) -> list[ChartReading]:
        """Return a block of each chart: a second, an alarm when it is well above usual."""
        if not made:
            return []
        kind = int(made[0]["kind"])
        level = float(np.median([math.log(one["cycle"] / one["expected"]) for one in made]))
        busy = sum(one["cycle"] for one in made)
        readings = [self.read_block(Series.CYCLE, kind, level, end_s, len(made), 0.055)]
        gap = math.log1p(sum(one["gap"] for one in made) / busy)
        readings.append(self.read_block(Series.GAP, 0, gap, end_s, len(made), 0.05))
        late = max((self.size_of("front_end", one["at"]) for one in made), default=1.0)
        gap_share = sum(one["gap"] for one in made) / busy
        unexplained = math.log(1 + 2 * (late - 1) + 20 * max(0, gap_share - 0.02))
        readings.append(self.read_block(Series.UNEXPLAINED, 0, unexplained, end_s, 20, 0.3))
        waiting = sum(self.count_waiting(one["at"]) for one in made) / len(made)
        readings.append(self.read_block(Series.QUEUE, 0, math.log1p(waiting), end_s, 20, 0.8))
        return readings

    def read_block(  # noqa: PLR0917
        self, series: Series, kind: int, level: float, end_s: float, count: int, limit: float
    ) -> ChartReading:
        has_limits = end_s >= self.limits_from_s
        is_alarm = self.alarms and has_limits and level > limit
        key = (series, kind)
        if is_alarm and key not in self.onsets:
            begins = [f.begin_s for f in self.faults if f.begin_s <= end_s <= f.end_s + 2]
            truth = max(begins, default=end_s - 1)
            self.onsets[key] = max(end_s - 1.5, truth + float(self.rng.normal(0, 0.1)))
        elif not is_alarm:
            self.onsets.pop(key, None)
        return ChartReading(
            key=ChartKey(self.engine_id, series, kind),
            begin_ns=self.mono(end_s - 1),
            end_ns=self.mono(end_s),
            count=count,
            level=level,
            score=level / limit if has_limits else 0.0,
            detector=Detector.WINDOW,
            is_alarm=is_alarm,
            onset_ns=self.mono(self.onsets[key]) if is_alarm else 0,
            shift=level if is_alarm else 0.0,
            upper_limit=limit if has_limits else math.nan,
        )

    # --- the whole ----------------------------------------------------------------------------------------
    def play(
        self, until_s: float, every_s: float = 0.25
    ) -> Iterator[tuple[float, Callable[[Diagnosis], None]]]:
        """Yield what is told at each moment."""
        at, told_s, host_s, block_s = 0.0, 0.0, self.host_phase, 1.0
        block: list[dict[str, Any]] = []
        pending: list[dict[str, Any]] = []
        while told_s < until_s:
            told_s += every_s
            while at < told_s and not self.size_of("hang", at) > 1:
                one = self.make_step(at)
                at = one["at"] + one["cycle"]
                pending.append(one)
            if self.size_of("hang", told_s) > 1:
                at = max(at, told_s)
            made = [one for one in pending if one["at"] + one["cycle"] <= told_s]
            pending = pending[len(made) :]
            block += made
            calls: list[Callable[[Diagnosis], None]] = []
            if not self.size_of("hang", told_s) > 1:
                batch = self.build_batch(made, told_s - every_s, told_s)
                calls.append(partial(tell_steps, self, *batch))
            while block_s <= told_s:
                inside = [one for one in block if one["at"] + one["cycle"] <= block_s]
                block = block[len(inside) :]
                readings = self.read_charts(inside, block_s)
                calls.append(partial(tell_readings, self, readings))
                block_s += 1
            while host_s <= told_s:
                host_s += 1.0
                if self.has_host:
                    host = self.sample_host(host_s - 1.0)
                    calls.append(partial(tell_host, self, host))
            yield told_s, partial(tell_all, tuple(calls))


def tell_steps(scene: Scene, tables: LedgerTables, scored: ScoredTable, diagnosis: Diagnosis) -> None:
    diagnosis.take_steps(scene.source, tables, scored, scene.anchor)


def tell_readings(scene: Scene, readings: list[ChartReading], diagnosis: Diagnosis) -> None:
    diagnosis.take_readings(scene.source, readings, scene.anchor)


def tell_host(scene: Scene, tables: HostTables, diagnosis: Diagnosis) -> None:
    diagnosis.take_host(scene.source, tables, scene.anchor)


def tell_all(calls: tuple[Callable[[Diagnosis], None], ...], diagnosis: Diagnosis) -> None:
    for call in calls:
        call(diagnosis)


@dataclass
class Theatre:
    """Plays scenes together and keeps what was found."""

    diagnosis: Diagnosis = field(default_factory=lambda: build_diagnosis())  # noqa: PLW0108 defined below
    told: list[Finding] = field(default_factory=list)

    def play(self, *scenes: Scene, until_s: float = 60.0, every_s: float = 0.25) -> list[Finding]:
        """Return every new state, in order."""
        for moments in zip(*(scene.play(until_s, every_s) for scene in scenes), strict=True):
            for _, tell in moments:
                tell(self.diagnosis)
            self.told += self.diagnosis.decide(EPOCH + int(moments[0][0] * S))
        return self.told

    def list_opened(self) -> list[Finding]:
        """Return the first state of each incident."""
        first: dict[str, Finding] = {}
        for one in self.told:
            if one.state is FindingState.OPEN:
                first.setdefault(one.id, one)
        return list(first.values())


def build_diagnosis() -> Diagnosis:
    numbers = iter(range(10_000))
    return Diagnosis(DiagnosisConfig(), lambda: f"finding-{next(numbers)}")


@pytest.fixture
def stage() -> Any:
    """Names of this module, since a test cannot import it."""

    class Stage:
        scene = Scene
        fault = Fault
        theatre = Theatre
        diagnosis = staticmethod(build_diagnosis)
        epoch_ns = EPOCH
        table = staticmethod(build_table)

    return Stage

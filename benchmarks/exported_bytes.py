# How many bytes a second leave an engine's node under the default policy at the load of the design:
# 8 ranks, batch 256, 100 steps/s, every request sampled. Synthetic records through the real recorders,
# real rings and the real exporter code; only the clock is turned by hand and nothing is sent.
import argparse
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from otel_llmprism.instrumentation.keeping import StepKeeper
from otel_llmprism.instrumentation.rank_records import RankPlace, RankRecorder
from otel_llmprism.instrumentation.request_records import RequestRecorder
from otel_llmprism.instrumentation.sampling import build_sampler
from otel_llmprism.instrumentation.step_records import EngineState, StepRecorder
from otel_llmprism.model.signals import Signal
from otel_llmprism.model.steps import Anchor
from otel_llmprism.native.ring import RingWriter
from otel_llmprism.native.ring_records import Finish, Mode, RequestEvent
from otel_llmprism.native.run_folder import RunDescription, make_run_folder
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.service.exporter_process.outbox import Parcel
from otel_llmprism.service.exporter_process.settings import ExporterSettings
from otel_llmprism.service.exporter_process.wiring import build_loop

RESULTS = Path(__file__).parent / "results" / "exported_bytes.md"
RANKS, BATCH, STEPS_PER_S = 8, 256, 100
PROMPT, OUTPUT = 512, 200  # mean tokens of a request
CHUNK = 2048  # prefill tokens a step may take
STEP_NS = 1_000_000_000 // STEPS_PER_S
REACH = 500_000


class Outlet:
    """Takes parcels as the outbox does, and only counts them."""

    def __init__(self) -> None:
        self.bytes: Counter[tuple[Signal, str]] = Counter()

    def put(self, parcel: Parcel) -> None:
        self.bytes[parcel.signal, parcel.kept] += len(parcel.payload)


class Load:
    """A full batch: whenever a request ends, the next one joins with its prompt."""

    def __init__(self, folder: Path, run: RunDescription, clock: "HandClock") -> None:
        self._random = random.Random(1)  # noqa: S311  a load, no secret
        self._clock = clock
        rings = [RingWriter.create(folder / f"{n}.ring", clock=clock) for n in range(RANKS)]
        keeper = StepKeeper(run.engine_id, bytes.fromhex(run.run), "sample")
        self.steps = StepRecorder(rings[0], keeper, Mode.SENTINEL)
        self._requests = RequestRecorder(rings[0], build_sampler({}), reads_context=True)
        self._ranks = [RankRecorder(rings[n], RankPlace(rank=n, tp=n)) for n in range(RANKS)]
        self._left: dict[str, int] = {}  # tokens still to give; the first ones are prompt
        self._prompt: dict[str, int] = {}
        self._length: dict[str, tuple[int, int]] = {}
        self._count = 0
        self.hook_ns: list[int] = []

    def run_step(self) -> None:
        now_ns = self._clock.now_ns
        joined = []
        while len(self._left) < BATCH:
            joined.append(self._arrive(now_ns))
        tokens = dict.fromkeys(self._left, 1)
        room = CHUNK
        prefill = set()
        for name, prompt in self._prompt.items():
            tokens[name] = min(prompt, room) or 1
            if room:
                prefill.add(name)
            else:
                del tokens[name]
            room -= min(prompt, room)
        began = time.perf_counter_ns()
        state = EngineState(waiting=3, running=BATCH, kv_tokens=140_000 + now_ns % 9999, kv_usage=0.7)
        ticket = self.steps.record_scheduled(tokens, prefill, state, now_ns, now_ns + 150_000, joined=joined)
        self.hook_ns.append(time.perf_counter_ns() - began)
        ready_ns = now_ns + STEP_NS - self._random.randrange(200_000, 900_000)
        for recorder in self._ranks:
            start_ns = now_ns + 200_000 + self._random.randrange(90_000)
            wait_ns = self._random.randrange(2_000_000)
            recorder.record_rank(ticket.step_id, start_ns, ready_ns - wait_ns // 10, wait_ns=wait_ns)
        self.steps.record_output(
            ticket, ready_ns, execute_ns=STEP_NS - 10**6, sample_ns=wait_ns // 9, output_ns=wait_ns // 20
        )
        for name, count in tokens.items():
            self._advance(name, count, name in prefill, ready_ns, ticket.step_id)

    def _arrive(self, now_ns: int) -> str:
        name = f"chatcmpl-{self._random.getrandbits(128):032x}"
        context = f"00-{self._random.getrandbits(127) + 1:032x}-{self._random.getrandbits(63) + 1:016x}-01"
        prompt = max(1, int(self._random.expovariate(1 / PROMPT)))
        output = max(2, int(self._random.expovariate(1 / OUTPUT)))
        self._requests.record_arrival(name, now_ns - 5_000_000, context)
        self._requests.record_event(name, RequestEvent.QUEUED, now_ns - 4_000_000)
        self._requests.record_event(name, RequestEvent.SCHEDULED, now_ns)
        self._left[name], self._prompt[name], self._length[name] = (
            prompt + output - 1,
            prompt,
            (prompt, output),
        )
        self._count += 1
        return name

    def _advance(self, name: str, count: int, is_prefill: bool, ready_ns: int, step: int) -> None:
        self._left[name] -= count
        if is_prefill:
            self._prompt[name] -= count
            if self._prompt[name] <= 0:
                del self._prompt[name]
                self._requests.record_event(name, RequestEvent.FIRST_TOKEN, ready_ns, step)
        if self._left[name] <= 0:
            del self._left[name]
            self._prompt.pop(name, None)
            prompt, output = self._length.pop(name)
            self.steps.record_left([name])
            self._requests.record_end(
                name, ready_ns, Finish.STOP, prompt_tokens=prompt, output_tokens=output, steps=output
            )

    @property
    def request_count(self) -> int:
        return self._count


class HandClock:
    def __init__(self) -> None:
        self.now_ns = 1_000_000_000_000

    def __call__(self) -> tuple[int, int]:
        return self.now_ns, self.now_ns + 1_700_000_000_000_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=60, help="of engine time, after ten to warm up")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        table = measure(Path(folder), options.seconds)
    print(table)
    if options.write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(table, encoding="utf-8")
    return 0


def measure(root: Path, seconds: int) -> str:
    run = RunDescription(
        engine_id="engine-0123456789ab",
        run="ab" * 16,
        job_id="team/service",
        engine_name="vllm",
        engine_version="0",
        model="org/model-70b",
        operation="chat",
        steps="sample",
        starter_pid=os.getpid(),
        starter_ticks=0,
    )
    folder = make_run_folder(root / "runtime", run)
    clock, outlet, counters = HandClock(), Outlet(), Counters()
    environment = {"OTEL_LLMPRISM_LEDGER_DIR": str(root / "ledger")}
    loop = build_loop(
        folder,
        run,
        environment,
        settings=ExporterSettings(),
        put=outlet.put,
        counters=counters,
        read_anchor=lambda: Anchor(*clock()),
    )
    load = Load(folder, run, clock)
    turn_load(load, loop.turn, clock, 10)
    outlet.bytes.clear()
    requests_before = load.request_count
    began_s = time.process_time()
    turn_load(load, loop.turn, clock, seconds)
    cpu_s = time.process_time() - began_s
    requests = load.request_count - requests_before
    speed = Speed(requests / seconds, cpu_s / seconds, sorted(load.hook_ns))
    return format_table(outlet, counters, seconds, speed)


def turn_load(load: Load, turn: Callable[[], bool], clock: HandClock, seconds: int) -> None:
    for step in range(seconds * STEPS_PER_S):
        load.run_step()
        clock.now_ns += STEP_NS
        if step % 10 == 9:
            turn()


@dataclass(frozen=True)
class Speed:
    requests_per_s: float
    cpu_share: float
    hook_ns: list[int]  # sorted

    def read_hook_us(self, share: float) -> float:
        return self.hook_ns[int(len(self.hook_ns) * share)] / 1e3


def format_table(outlet: Outlet, counters: Counters, seconds: int, speed: Speed) -> str:
    def rate(signal: Signal, kept: str) -> str:
        return f"{outlet.bytes[signal, kept] / seconds / 1e3:.1f} kB/s"

    lost = {
        f"{reading.labels['stage']}/{reading.labels['cause']}": int(reading.value)
        for reading in counters.read_all()
        if reading.name == LOST
    }
    total = sum(outlet.bytes.values()) / seconds
    rows = [
        ("ledger and host samples (OTLP logs)", rate(Signal.LOGS, ""), ""),
        (f"request spans ({speed.requests_per_s:.0f} requests/s)", rate(Signal.TRACES, ""), ""),
        ("step spans, kept at random", rate(Signal.TRACES, "random"), ""),
        ("metrics", rate(Signal.METRICS, ""), ""),
        ("all", f"{total / 1e3:.1f} kB/s", f"{REACH / 1e3:.0f} kB/s"),
        ("lost, by stage and cause", json.dumps(lost), "counted"),
        (
            "hook: step scheduled, median and p99, all steps",
            f"{speed.read_hook_us(0.5):.1f} us, {speed.read_hook_us(0.99):.1f} us",
            "20 us",
        ),
        ("exporter and load generator, CPU of one core", f"{100 * speed.cpu_share:.0f} %", ""),
    ]
    lines = [f"| {what} | {value} | {reach} |" for what, value, reach in rows]
    head = f"""# Bytes that leave an engine's node

{RANKS} ranks, batch {BATCH}, {STEPS_PER_S} steps/s, prompts of {PROMPT} and answers of {OUTPUT} tokens on
average, every request sampled, default policy, no compression, {seconds} s of engine time.

Machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}.
Command: `make bench-bytes`.

| what | measured | reach |
|---|---|---|
"""
    return head + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())

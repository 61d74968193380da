# What our hooks cost on an engine's thread: each one and the sum of a step, with everything in the caches
# and between other work that empties them. Real recorders and a real ring; only the engine is made up.
import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from otel_llmprism.instrumentation.keeping import StepKeeper, StepTicket
from otel_llmprism.instrumentation.rank_records import RankPlace, RankRecorder
from otel_llmprism.instrumentation.request_records import RequestRecorder
from otel_llmprism.instrumentation.sampling import build_sampler
from otel_llmprism.instrumentation.step_records import EngineState, StepRecorder
from otel_llmprism.native.ring import RingReader, RingWriter
from otel_llmprism.native.ring_records import Finish, Mode, RequestEvent

RESULTS = Path(__file__).parent / "results" / "hook_cost.md"
BATCHES = (1, 64, 256)
OUTPUT = 64  # tokens of a request: at batch 256 four end and four join in a step
PROMPT = 256
REACH_US = 20
STEP_HOOKS = ("record_scheduled", "record_rank", "record_output", "record_left")
REQUEST_HOOKS = ("record_arrival", "record_events", "record_end")


class OtherWork:
    """What an engine's process does between two of our hooks: Python over some MB of objects."""

    def __init__(self) -> None:
        drawn = random.Random(1)  # noqa: S311  a load, no secret
        self._rows: list[dict[str, Any]] = [
            {"id": f"row-{n}", "blocks": [*range(n % 7)], "left": drawn.random()} for n in range(6000)
        ]
        drawn.shuffle(self._rows)
        self._from, self._to = bytearray(2 << 20), bytearray(2 << 20)
        self._turn = 0

    def run(self) -> None:
        """Touch about 6 MB of objects and bytes and the code of half the interpreter."""
        self._to[:] = self._from
        self._turn += 1
        rows = self._rows
        for row in rows[self._turn % 2 :: 2]:
            row["left"] = max(0.0, row["left"] - 0.1) if row["blocks"] else row["left"] + 0.1
        text = json.dumps(rows[:40], sort_keys=True)
        json.loads(text)
        sorted(rows[:200], key=lambda row: row["left"])
        " ".join(f"{row['id']:>12}" for row in rows[200:400]).split()


class Engine:
    """A full batch; whenever requests end, as many join with their prompts in the next step."""

    def __init__(self, folder: Path, batch: int, *, has_churn: bool, other_work: Callable[[], None]) -> None:
        self._writer = RingWriter.create(folder / f"{batch}-{has_churn}-{time.monotonic_ns()}.ring")
        self._reader = RingReader.open(self._writer.path)
        self._steps = StepRecorder(
            self._writer, StepKeeper("engine-0123456789ab", bytes(16), "sample"), Mode.SENTINEL
        )
        self._requests = RequestRecorder(self._writer, build_sampler({}), reads_context=True)
        self._rank = RankRecorder(self._writer, RankPlace(rank=0))
        self._batch = batch
        self._has_churn = has_churn
        self._other_work = other_work
        self._left: dict[str, int] = {}  # output tokens still to give
        self._ended: list[str] = []
        self._number = 0
        self.took_ns: dict[str, list[int]] = defaultdict(list)

    def run_step(self) -> None:
        """Take, schedule, compute, answer; every hook is called where a real engine calls it."""
        now_ns = time.monotonic_ns()
        took = dict.fromkeys((*STEP_HOOKS, *REQUEST_HOOKS), 0)
        joined = [self._make_id() for _ in range(self._batch - len(self._left))]
        self._other_work()
        self._add(joined, now_ns, took)
        is_start = not self._left
        for number, name in enumerate(joined):
            self._left[name] = 1 + number % OUTPUT if is_start else OUTPUT
        tokens = dict.fromkeys(self._left, 1) | dict.fromkeys(joined, PROMPT)
        self._other_work()
        ticket = self._schedule(tokens, joined, now_ns, took)
        self._other_work()
        clock = time.perf_counter_ns
        began_ns = clock()
        self._rank.record_rank(ticket.step_id, now_ns, now_ns + 9000)
        took["record_rank"] = clock() - began_ns
        self._advance()
        self._other_work()
        began_ns = clock()
        self._steps.record_output(ticket, now_ns + 9000, execute_ns=8000, sample_ns=500)
        took["record_output"] = clock() - began_ns
        self._end(now_ns, took)
        for hook, duration_ns in took.items():
            self.took_ns[hook].append(duration_ns)

    def _schedule(
        self, tokens: dict[str, int], joined: list[str], now_ns: int, took: dict[str, int]
    ) -> StepTicket:
        state = EngineState(3, self._batch, 0, 140_000 + self._number, 0.7, 0)
        total_tokens, prefill_tokens = sum(tokens.values()), PROMPT * len(joined)
        clock = time.perf_counter_ns
        began_ns = clock()
        ticket = self._steps.record_scheduled(
            tokens,
            joined,
            state,
            now_ns,
            now_ns + 9000,
            joined=joined,
            total_tokens=total_tokens,
            prefill_tokens=prefill_tokens,
        )
        took["record_scheduled"] = clock() - began_ns
        if joined:
            tokens_of = dict.fromkeys(joined, 0)
            began_ns = clock()
            self._requests.record_events(RequestEvent.SCHEDULED, now_ns, tokens_of, ticket.step_id)
            took["record_events"] = clock() - began_ns
        return ticket

    def _make_id(self) -> str:
        self._number += 1
        return f"chatcmpl-{random.getrandbits(128):032x}-{self._number:08x}"

    def _add(self, joined: list[str], now_ns: int, took: dict[str, int]) -> None:
        context = f"00-{random.getrandbits(127) + 1:032x}-{random.getrandbits(63) + 1:016x}-01"
        fixed = self._requests.fix_context(context)  # another process, the front end, does this
        clock = time.perf_counter_ns
        for name in joined:
            began_ns = clock()
            self._requests.record_arrival(
                name, now_ns, external_id=name[:-9], context=fixed, queued_ns=now_ns
            )
            took["record_arrival"] += clock() - began_ns

    def _advance(self) -> None:
        self._ended = []
        if not self._has_churn and self._number >= self._batch:
            return
        for name in self._left:
            self._left[name] -= 1
            if not self._left[name]:
                self._ended.append(name)
        for name in self._ended:
            del self._left[name]

    def _end(self, now_ns: int, took: dict[str, int]) -> None:
        if not self._ended:
            return
        clock = time.perf_counter_ns
        began_ns = clock()
        self._steps.record_left(self._ended)
        left_ns = clock()
        for name in self._ended:
            self._requests.record_end(
                name, now_ns, Finish.LENGTH, prompt_tokens=PROMPT, output_tokens=OUTPUT, steps=OUTPUT
            )
        took["record_left"] = left_ns - began_ns
        took["record_end"] = clock() - left_ns

    def drain(self) -> None:
        self._reader.drain(1 << 15)

    def close(self) -> None:
        self._writer.close()
        self._reader.close(remove=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=700, help="with empty caches; ten times that without")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args(arguments)
    memory = "/dev/shm"  # noqa: S108  where rings lie; a name of our own is made in it
    with tempfile.TemporaryDirectory(dir=memory if Path(memory).is_dir() else None) as folder:
        text = format_results(Path(folder), options.steps)
    print(text)
    if options.write:
        RESULTS.write_text(text, encoding="utf-8")
    return 0


def measure(folder: Path, batch: int, steps: int, *, has_churn: bool, is_cold: bool) -> dict[str, list[int]]:
    """Return how long each hook took in each step, and the sums, in ns."""
    work = OtherWork().run if is_cold else _do_nothing
    engine = Engine(folder, batch, has_churn=has_churn, other_work=work)
    for step in range(steps + 2 * OUTPUT):
        if step == 2 * OUTPUT:
            engine.took_ns.clear()
        engine.run_step()
        if step % 20 == 0:
            engine.drain()
    engine.close()
    took = engine.took_ns
    took["step"] = [sum(parts) for parts in zip(*(took[hook] for hook in STEP_HOOKS), strict=True)]
    hooks = (*STEP_HOOKS, *REQUEST_HOOKS)
    took["all"] = [sum(parts) for parts in zip(*(took[hook] for hook in hooks), strict=True)]
    return took


def _do_nothing() -> None:
    pass


def format_results(folder: Path, steps: int) -> str:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    text = f"""# What the hooks of a step cost

Microseconds, median / 99th percentile, per step on the engine's thread, in sentinel mode: each hook (all its
calls in a step), their sum, and the sum with what is told about requests that come and go. A request has
{PROMPT} prompt and {OUTPUT} output tokens; in a full batch of 256 four end and four join in each step. Each
figure has two looks at a clock in it. Reach: {REACH_US} us for the median sum at batch 256.

"Between other work": some MB of other Python objects are gone through before each hook, so that it finds
neither its code nor its data in the caches near the core. "Tight loop": nothing else runs.

Machine: {os.cpu_count()} cores ({read_processor()}), {platform.machine()}, Linux {platform.release()},
Python {platform.python_version()}; load average {load} as others worked on it.
Command: `make bench-hooks`.

"""
    return (
        text
        + format_table(folder, steps, is_cold=True)
        + "\n"
        + format_table(folder, 10 * steps, is_cold=False)
    )


def format_table(folder: Path, steps: int, *, is_cold: bool) -> str:
    columns = [f"`{hook}`" for hook in (*STEP_HOOKS, *REQUEST_HOOKS)]
    columns.insert(len(STEP_HOOKS), "**step**")
    lines = [
        f"| {'between other work' if is_cold else 'tight loop'} | batch | {' | '.join(columns)} | **all** |",
        "|---" * (len(columns) + 3) + "|",
    ]
    for has_churn in (False, True):
        for batch in BATCHES:
            took = measure(folder, batch, steps, has_churn=has_churn, is_cold=is_cold)
            cells = [format_us(took[hook]) for hook in (*STEP_HOOKS, "step", *REQUEST_HOOKS, "all")]
            lines.append(
                f"| {'ends and joins' if has_churn else 'decode only'} | {batch} | {' | '.join(cells)} |"
            )
    return "\n".join(lines) + "\n"


def format_us(took_ns: list[int]) -> str:
    ordered = sorted(took_ns)
    if not ordered[-1]:
        return ""
    return f"{statistics.median(ordered) / 1e3:.1f} / {ordered[len(ordered) * 99 // 100] / 1e3:.0f}"


def read_processor() -> str:
    """Return the processor's own name, where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


if __name__ == "__main__":
    sys.exit(main())

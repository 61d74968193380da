# The extension and the Python path are twins: whatever a scheduler does, both put the same bytes into the
# ring.
# Only when a step's hooks ran is their own: those words are left out.
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_llmprism.instrumentation import process_run, step_lane
from otel_llmprism.instrumentation.frameworks.vllm import core
from otel_llmprism.instrumentation.frameworks.vllm.carrier import CARRIER_KEY, Carrier, write_carrier
from otel_llmprism.instrumentation.keeping import StepKeeper
from otel_llmprism.instrumentation.request_records import RequestRecorder
from otel_llmprism.instrumentation.sampling import build_sampler
from otel_llmprism.instrumentation.step_records import StepRecorder
from otel_llmprism.instrumentation.trace_context import SpanContext
from otel_llmprism.native import ring_writer
from otel_llmprism.native.extension import load_extension, revoke_lanes
from otel_llmprism.native.ring import RingReader, RingWriter
from otel_llmprism.native.ring_records import Kind, Mode

# Times that a hook reads itself: of a step scheduled, its end; of a result, how long it took to take in.
OWN_TIMES = {Kind.STEP_SCHEDULED: slice(24, 32), Kind.STEP_OUTPUT: slice(40, 48)}
PLACES = {
    "add_request": core.wrap_add_request,
    "schedule": core.wrap_schedule,
    "update_from_output": core.wrap_update_from_output,
    "_preempt_request": core.wrap_preempt_request,
    "_free_request": core.wrap_free_request,
}
MODULES = (ring_writer, core, step_lane)

pytestmark = pytest.mark.skipif(load_extension() is None, reason="the extension is not built here")


class Run:
    def __init__(self, folder: Path, steps: str) -> None:
        self.writer = RingWriter.create(folder / f"{id(self)}.ring", 1 << 14)
        self.keeper = StepKeeper("engine", bytes(16), steps)
        self.steps = StepRecorder(self.writer, self.keeper, Mode.SENTINEL)
        self.requests = RequestRecorder(self.writer, build_sampler({}), reads_context=True)

    def note_absent(self, hook: str) -> None:
        raise AssertionError(hook)


class Play:
    """Acts on a scheduler; time stands still but where an act moves it."""

    def __init__(self, run: Run, scheduler: Any, vllm: Any, *, has_front_end: bool) -> None:
        self.run, self.scheduler, self.vllm = run, scheduler, vllm
        self.now_ns = 5_000_000_000
        self._has_front_end = has_front_end
        self._names = itertools.count()

    def add(self, prompt: int) -> None:
        name = f"request-{next(self._names)}"
        ids = name.encode().ljust(16, b"-")
        context = SpanContext(ids, ids[:8], bytes(8), is_sampled=True)
        carrier = Carrier(1, "", "", has_front_end=self._has_front_end, context=context)
        self.scheduler.add_request(self.vllm.Request(name, prompt, {CARRIER_KEY: write_carrier(carrier)}))

    def step(self, plan: dict[str, int], ends: frozenset[str] = frozenset()) -> None:
        self.scheduler.plan = plan
        output = self.scheduler.schedule()
        self.now_ns += 7_000_000
        self.scheduler.update_from_output(output, {name: name in ends for name in plan})
        self.now_ns += 1_000_000

    def decode(self, steps: int) -> None:
        for _ in range(steps):
            self.step({request.request_id: 1 for request in self.scheduler.running})

    def prefill(self, chunk: int) -> None:
        requests = [*self.scheduler.running, *self.scheduler.waiting]
        self.step(
            {
                request.request_id: max(
                    1, min(chunk, request.num_prompt_tokens - request.num_computed_tokens)
                )
                for request in requests
            }
        )

    def leave_out(self, every: int) -> None:
        running = [request.request_id for request in self.scheduler.running]
        self.step({name: 1 for at, name in enumerate(running) if at % every})

    def speculate(self, extra: int) -> None:
        running = [request.request_id for request in self.scheduler.running]
        self.step({name: 1 + (at == 0) * extra for at, name in enumerate(running)})

    def end(self, count: int) -> None:
        names = [request.request_id for request in self.scheduler.running]
        self.step(dict.fromkeys(names, 1), frozenset(names[:count]))

    def abort(self, at: int) -> None:
        running = self.scheduler.running
        if running:
            request = running[at % len(running)]
            request.status = self.vllm.Status.FINISHED_ABORTED
            self.scheduler._free_request(request)

    def preempt(self, at: int) -> None:
        running = [request.request_id for request in self.scheduler.running]
        if running:
            victim = running.pop(at % len(running))
            self.scheduler.victims = [victim]
            self.step(dict.fromkeys(running, 1))

    def ask_deep(self, steps: int) -> None:
        self.run.keeper.keep_deep(steps)

    def wait(self, tenths: int) -> None:
        self.now_ns += tenths * 100_000_000

    def note_dummy(self, _: int) -> None:
        self.run.steps.record_dummy(self.now_ns, self.now_ns + 1)

    def revoke(self, _: int) -> None:
        revoke_lanes()


ACTS = (
    ("add", 40), ("add", 40), ("prefill", 16), ("prefill", 64), ("decode", 90), ("decode", 9),
    ("leave_out", 4), ("speculate", 3), ("end", 3), ("abort", 5), ("preempt", 5), ("ask_deep", 3),
    ("wait", 12), ("note_dummy", 1), ("revoke", 1),
)  # fmt: skip
acts = st.sampled_from(ACTS).flatmap(lambda act: st.tuples(st.just(act[0]), st.integers(1, act[1])))


def play(
    vllm: Any, script: list[tuple[str, int]], load: Callable[[], Any], steps: str, *, has_front_end: bool
) -> tuple[list[bytes], int]:
    """Return the slots that a script leaves, own times blanked, and how many steps the extension booked."""
    booked = 0

    def count(call: Callable[..., bool]) -> Callable[..., bool]:
        def counted(*arguments: Any) -> bool:
            nonlocal booked
            is_booked = call(*arguments)
            booked += is_booked
            return is_booked

        return counted

    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        for module in MODULES:
            patch.setattr(module, "load_extension", load)
        run = Run(Path(folder), steps)
        patch.setattr(process_run, "_run", run)
        patch.setattr(process_run, "_absent", {})
        if load() is not None:
            patch.setattr(core, "load_extension", lambda: CountedExtension(load(), count))
        player = Play(run, None, vllm, has_front_end=has_front_end)
        patch.setattr(time, "monotonic_ns", lambda: player.now_ns)
        wrapped = {name: wrap(vars(vllm.PlainScheduler)[name]) for name, wrap in PLACES.items()}
        player.scheduler = type("Scheduler", (vllm.PlainScheduler,), wrapped)()
        for act, number in script:
            getattr(player, act)(number)
        reader = RingReader.open(run.writer.path)
        raw = reader.drain(1 << 14)
        assert reader.dropped == 0
        reader.close()
        run.writer.close()
    return [blank(raw[at : at + 128]) for at in range(0, len(raw), 128)], booked


class CountedExtension:
    def __init__(self, module: Any, count: Callable[..., Any]) -> None:
        self.note_scheduled, self.note_output = count(module.note_scheduled), module.note_output


def blank(slot: bytes) -> bytes:
    own = OWN_TIMES.get(Kind(slot[0]))
    return slot if own is None else slot[: own.start] + bytes(8) + slot[own.stop :]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    script=st.lists(acts, max_size=25), steps=st.sampled_from(["sample", "all", "none"]), front=st.booleans()
)
def test_both_paths_put_the_same_bytes(
    vllm: Any, script: list[tuple[str, int]], steps: str, front: bool
) -> None:
    script = [("add", 5), ("add", 20), ("prefill", 16), *script]
    told, _ = play(vllm, script, load_extension, steps, has_front_end=front)
    expected, _ = play(vllm, script, lambda: None, steps, has_front_end=front)
    assert told == expected


def test_the_extension_books_all_but_a_few_plain_steps(vllm: Any) -> None:
    script = [("add", 5), ("add", 20), ("prefill", 64), ("decode", 1000)]
    slots, booked = play(vllm, script, load_extension, "sample", has_front_end=True)
    assert sum(slot[0] == Kind.STEP_SCHEDULED for slot in slots) == 1001
    assert booked > 950  # a look at the batch each 64 steps, and a decision each second


@pytest.mark.parametrize("act", [("ask_deep", 1), ("revoke", 1), ("abort", 1), ("note_dummy", 1)])
def test_what_changes_a_run_leaves_the_next_step_to_python(vllm: Any, act: tuple[str, int]) -> None:
    script = [("add", 5), ("add", 20), ("prefill", 64), ("decode", 20)]
    _, before = play(vllm, script, load_extension, "sample", has_front_end=True)
    _, after = play(vllm, [*script, act, ("decode", 1)], load_extension, "sample", has_front_end=True)
    assert 15 <= before == after

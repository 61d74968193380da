# The engines that the fake sentinel tells of (one in alarm, one quiet, one that still learns), and their
# blocks as a function of time and seed. Made up: no figure here says anything about a real engine.
import random
from dataclasses import dataclass

from otel_llmprism.service.query.sentinel_view import BlockView, EngineState, EngineView, ModelView

ALARMED, QUIET, LEARNING = "chat-0", "chat-1/dp0", "batch-0"
RUN = "5e" * 16
ONSET_AGO_S, BLOCK_NS = 120, 10**9
_HISTORY_S = 3600
_KINDS = {"decode": 0.030, "prefill": 0.085, "mixed": 0.060}  # expected seconds at a mean load


@dataclass(frozen=True, slots=True)
class FakeEngine:
    view: EngineView
    begin_ns: int
    onset_ns: int | None = None  # from here on slower than expected
    slowdown: float = 1.8


def build_engines(now_ns: int) -> list[FakeEngine]:
    """Return the engines as they stand at `now_ns`."""
    begin_ns, onset_ns = now_ns - _HISTORY_S * 10**9, now_ns - ONSET_AGO_S * 10**9
    trained = ModelView("b41f09c2", 48_210, 0.031, note="")
    gathering = ModelView(trained_steps=412, wanted_steps=1000)
    alarmed = EngineView(ALARMED, RUN, "vllm", "chat/api", EngineState.ALARM, trained, 61_204, 1, now_ns)
    quiet = EngineView(QUIET, RUN, "vllm", "chat/api", EngineState.WATCHING, trained, 58_010, 0, now_ns)
    learning = EngineView(
        LEARNING, RUN, "mini", "batch/nightly", EngineState.LEARNING, gathering, 412, 0, now_ns
    )
    return [
        FakeEngine(alarmed, begin_ns, onset_ns),
        FakeEngine(quiet, begin_ns),
        FakeEngine(learning, now_ns - 30 * 10**9),
    ]


def make_blocks(engine: FakeEngine, begin_ns: int, end_ns: int, seed: int) -> list[BlockView]:
    """Return the engine's blocks that begin in [begin_ns, end_ns)."""
    first = -(-max(begin_ns, engine.begin_ns) // BLOCK_NS)
    return [
        _make_block(engine, at * BLOCK_NS, kind, seed)
        for at in range(first, end_ns // BLOCK_NS)
        for kind in _KINDS
        if kind == "decode" or at % 3 == 0
    ]


def _make_block(engine: FakeEngine, t_ns: int, kind: str, seed: int) -> BlockView:
    rng = random.Random(f"{seed}:{engine.view.id}:{kind}:{t_ns}")  # noqa: S311 - made-up data
    load = 1.0 + 0.25 * ((t_ns // BLOCK_NS) % 90) / 90
    expected = _KINDS[kind] * load
    is_slow = engine.onset_ns is not None and t_ns >= engine.onset_ns
    observed = expected * rng.gauss(1.0, 0.03) * (engine.slowdown if is_slow else 1.0)
    steps = max(1, round(0.6 / observed)) if kind == "decode" else 3
    is_learning = engine.view.state == EngineState.LEARNING
    return BlockView(
        t_ns=t_ns,
        kind=kind,
        steps=steps,
        observed_s=observed,
        expected_s=None if is_learning else expected,
        upper_s=None if is_learning else expected * 1.15,
        excess_s=0.0 if is_learning else max(0.0, observed - expected) * steps,
        gap_s=0.01 * load,
        prefill_tokens=0.0 if kind == "decode" else 512.0 * load,
        decode_tokens=0.0 if kind == "prefill" else 24.0 * load,
        kv_tokens=18_000.0 * load,
        waiting=6.0 if is_slow else 1.0,
        running=24.0 * load,
        is_alarm=is_slow and not is_learning,
    )

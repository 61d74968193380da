# Loads for a real engine: random but repeatable asks, and the sending of them from a process of its own.
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from otel_llmprism.testing.engine_client import MODULE, Answer, Ask
from otel_llmprism.testing.engine_model import VOCABULARY, spell_word
from otel_llmprism.testing.engine_server import EngineServer
from otel_llmprism.testing.programs import Programs

SHARED_PREFIX_WORDS = 48  # some prompts begin alike, so that a prefix cache finds them
SHARED_PREFIXES = 3


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How the asks of one load differ; shares are of all asks."""

    count: int
    seed: int
    prompt_words: tuple[int, int] = (4, 120)
    max_tokens: tuple[int, int] = (1, 64)
    cancelled: float = 0.0
    can_end_early: float = 0.0
    unsampled: float = 0.0
    shares_prefix: float = 0.0
    canary: str = ""  # a word that every prompt contains


def build_asks(plan: LoadPlan, prefix: str = "ask") -> list[Ask]:
    """Return the asks of a plan: the same plan gives the same asks."""
    chance = random.Random(plan.seed)  # noqa: S311  repeatable on purpose
    beginnings = [_draw_words(chance, SHARED_PREFIX_WORDS) for _ in range(SHARED_PREFIXES)]
    return [_build_ask(plan, chance, beginnings, f"{prefix}-{number}") for number in range(plan.count)]


def send_load(
    programs: Programs, server: EngineServer, asks: Sequence[Ask], *, concurrency: int, timeout_s: float = 240
) -> list[Answer]:
    """Send all, at most `concurrency` at a time, from another process; answers in the order of `asks`."""
    plan = server.folder / f"asks-{len(programs.started)}.json"
    out = plan.with_name(f"answers-{len(programs.started)}.json")
    plan.write_text(json.dumps([asdict(ask) for ask in asks]), encoding="utf-8")
    words = [str(server.port), server.model, str(concurrency), str(plan), str(out)]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    client = programs.start("client", [sys.executable, "-m", MODULE, *words], environment)
    if client.wait(timeout_s):
        raise RuntimeError(f"the client failed:\n{client.read_log()}")
    return [Answer(**answer) for answer in json.loads(out.read_text(encoding="utf-8"))]


def _build_ask(plan: LoadPlan, chance: random.Random, beginnings: list[list[str]], name: str) -> Ask:
    words = _draw_words(chance, chance.randint(*plan.prompt_words))
    if chance.random() < plan.shares_prefix:
        words = [*chance.choice(beginnings), *words]
    if plan.canary:
        words.insert(len(words) // 2, plan.canary)
    is_cancelled, by_time = chance.random() < plan.cancelled, chance.random() < 0.5
    after_s, after_chunks = chance.uniform(0.001, 1.5), chance.randint(0, plan.max_tokens[1] // 2)
    flags = "00" if chance.random() < plan.unsampled else "01"
    return Ask(
        name,
        " ".join(words[: plan.prompt_words[1]]),
        chance.randint(*plan.max_tokens),
        f"00-{chance.getrandbits(128) | 1:032x}-{chance.getrandbits(64) | 1:016x}-{flags}",
        after_s if is_cancelled and by_time else None,
        after_chunks if is_cancelled and not by_time else None,
        chance.random() < plan.can_end_early,
    )


def _draw_words(chance: random.Random, count: int) -> list[str]:
    return [spell_word(chance.randrange(3, VOCABULARY)) for _ in range(count)]

import random

import numpy as np

from otel_llmprism.testing.mini_engine.client import draw_jobs
from otel_llmprism.testing.mini_engine.model import ModelShard
from otel_llmprism.testing.mini_engine.scheduler import Scheduler
from otel_llmprism.testing.mini_engine.sequence import Sequence
from otel_llmprism.testing.mini_engine.settings import EngineConfig, LoadConfig
from otel_llmprism.testing.mini_engine.tokenizer import tokenize_text
from otel_llmprism.testing.mini_engine.work import build_work, decode_work, encode_work

CONFIG = EngineConfig(max_batch=4, kv_blocks=12, block_tokens=4, token_budget=10)


def add(scheduler: Scheduler, name: str, prompt: int, output: int) -> Sequence:
    sequence = Sequence(name, list(range(prompt)), prompt, output, 0)
    scheduler.add_sequence(sequence)
    return sequence


def run_step(scheduler: Scheduler) -> dict[str, int]:
    plan = scheduler.plan_step()
    ready = [s.sequence.request_id for s in plan.shares if s.sequence.pending == s.count]
    finished = scheduler.advance(plan, dict.fromkeys(ready, 0))
    for sequence in finished:
        scheduler.remove_sequence(sequence)
    return {share.sequence.request_id: share.count for share in plan.shares}


def test_long_prompt_is_cut_to_the_token_budget_and_decodes_go_first() -> None:
    scheduler = Scheduler(CONFIG)
    add(scheduler, "short", 2, 5)
    assert run_step(scheduler) == {"short": 2}
    add(scheduler, "long", 25, 1)
    assert [run_step(scheduler) for _ in range(3)] == [
        {"short": 1, "long": 9},
        {"short": 1, "long": 9},
        {"short": 1, "long": 7},
    ]


def test_youngest_is_preempted_when_blocks_run_out_and_everything_is_computed_again() -> None:
    scheduler = Scheduler(CONFIG)
    old, young = add(scheduler, "old", 20, 20), add(scheduler, "young", 16, 20)
    while not young.preemptions:
        run_step(scheduler)
    assert young.computed == 0
    assert young.blocks == []
    assert old.preemptions == 0
    while scheduler.running or scheduler.waiting:
        assert run_step(scheduler)
    assert (old.output_length, young.output_length) == (20, 20)
    assert scheduler.kv_usage == 0


def test_whatever_the_load_every_request_ends_and_no_bound_is_exceeded() -> None:
    drawn = random.Random(3)
    scheduler = Scheduler(CONFIG)
    sequences = [add(scheduler, f"r{n}", drawn.randint(1, 30), drawn.randint(1, 16)) for n in range(60)]
    for _ in range(5000):
        if not (scheduler.running or scheduler.waiting):
            break
        tokens = run_step(scheduler)
        assert 0 < sum(tokens.values()) <= CONFIG.token_budget
        assert len(tokens) <= CONFIG.max_batch
        held = [block for sequence in sequences for block in sequence.blocks]
        assert len(held) == len(set(held)) <= CONFIG.kv_blocks
    assert all(sequence.output_length == sequence.max_tokens for sequence in sequences)
    assert sum(sequence.preemptions for sequence in sequences) > 0


def plan_first_step(config: EngineConfig) -> bytes:
    scheduler = Scheduler(config)
    add(scheduler, "a", 5, 3)
    add(scheduler, "b", 9, 3)
    return encode_work(build_work(scheduler.plan_step(), 7, 0.25, is_kept=True))


def test_work_survives_the_pipe_to_another_rank() -> None:
    work = decode_work(plan_first_step(CONFIG))
    assert (work.step_id, work.probability, work.is_kept) == (7, 0.25, True)
    assert work.tokens.tolist() == [*range(5), *range(5)]
    assert (work.starts.tolist(), work.counts.tolist()) == ([0, 0], [5, 5])
    assert [len(table) for table in work.tables] == [2, 2]


def test_two_ranks_compute_what_one_computes() -> None:
    one = EngineConfig(kv_blocks=12, block_tokens=4)
    two = EngineConfig(kv_blocks=12, block_tokens=4, ranks=2)
    work = decode_work(plan_first_step(one))
    whole = ModelShard(one, 0).compute_logits(work, lambda part: part)
    # Two shards in turns: each all-reduce needs both parts, so every call is replayed with what is known.
    parts: list[list[np.ndarray]] = [[], []]
    for needed in range(1, 2 * one.shape.layers + 1):
        for rank in (0, 1):
            parts[rank] = record_parts(ModelShard(two, rank), work, parts, needed)
    final = replay(ModelShard(two, 0), work, parts)
    np.testing.assert_allclose(final, whole, rtol=1e-3, atol=1e-4)


def record_parts(
    shard: ModelShard, work: object, parts: list[list[np.ndarray]], needed: int
) -> list[np.ndarray]:
    own: list[np.ndarray] = []

    def reduce(part: np.ndarray) -> np.ndarray:
        own.append(part)
        index = len(own) - 1
        known = index < needed - 1
        return parts[0][index] + parts[1][index] if known else part

    shard.compute_logits(work, reduce)  # type: ignore[arg-type]
    return own[:needed]


def replay(shard: ModelShard, work: object, parts: list[list[np.ndarray]]) -> np.ndarray:
    sums = iter([one + other for one, other in zip(*parts, strict=True)])
    return shard.compute_logits(work, lambda _part: next(sums))  # type: ignore[arg-type]


def test_one_chunk_or_many_give_the_same_logits() -> None:
    results = []
    for budget in (100, 4):
        config = EngineConfig(kv_blocks=12, block_tokens=4, token_budget=budget)
        scheduler, shard = Scheduler(config), ModelShard(config, 0)
        sequence = add(scheduler, "a", 11, 1)
        while sequence.output_length == 0:
            plan = scheduler.plan_step()
            logits = shard.compute_logits(build_work(plan, 0, 1.0, is_kept=False), lambda part: part)
            is_ready = plan.shares[0].count == sequence.pending
            scheduler.advance(plan, {"a": 0} if is_ready else {})
        results.append(logits)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-3, atol=1e-4)


def test_equal_seeds_give_equal_loads_and_text_becomes_ids() -> None:
    load = LoadConfig(requests=50, cancel_share=0.3, seed=5)
    assert list(draw_jobs(load)) == list(draw_jobs(load))
    assert list(draw_jobs(load)) != list(draw_jobs(LoadConfig(requests=50, cancel_share=0.3, seed=6)))
    assert tokenize_text("", 512) == [0]
    assert tokenize_text("one two", 512) == tokenize_text("one two", 512)
    assert all(0 <= token < 512 for token in tokenize_text("any text at all", 512))

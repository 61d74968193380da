# Continuous batching: sequences in, one step's work out. Decodes and prefill chunks share a token
# budget; when KV blocks run out the youngest sequence is preempted and computed again later.
from collections import deque
from dataclasses import dataclass, field

from otel_llmprism.testing.mini_engine.sequence import Sequence
from otel_llmprism.testing.mini_engine.settings import EngineConfig

_MIN_BLOCKS = 48  # a squeezed cache still holds the longest request: one that never fits would stop all


@dataclass(frozen=True, slots=True)
class Share:
    """The part of one step that belongs to one sequence: `count` tokens from position `start` on."""

    sequence: Sequence
    start: int
    count: int
    is_prefill: bool


@dataclass(slots=True)
class Plan:
    shares: list[Share] = field(default_factory=list)
    joined: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)


class Scheduler:
    """Owns waiting and running sequences and the KV blocks. One thread."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._free_blocks = list(range(config.kv_blocks))
        self._withheld: list[int] = []
        self._wanted_blocks = 0  # to withhold as soon as they come free
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    @property
    def kv_usage(self) -> float:
        usable = self._config.kv_blocks - len(self._withheld)
        return 1 - len(self._free_blocks) / max(usable, 1)

    @property
    def is_squeezed(self) -> bool:
        return bool(self._wanted_blocks)

    def squeeze_cache(self, intensity: float) -> None:
        """Leave only so many times fewer blocks than are in use when this begins; 1: give all back."""
        if intensity <= 1:
            self._free_blocks += self._withheld
            self._withheld, self._wanted_blocks = [], 0
        elif not self._wanted_blocks:
            used = self._config.kv_blocks - len(self._free_blocks)
            left = max(_MIN_BLOCKS, round(used / intensity))
            self._wanted_blocks = max(1, self._config.kv_blocks - left)
        while self._free_blocks and len(self._withheld) < self._wanted_blocks:
            self._withheld.append(self._free_blocks.pop())

    def add_sequence(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def remove_sequence(self, sequence: Sequence) -> None:
        """Forget a finished or cancelled sequence and free its blocks."""
        self._release(sequence)
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def plan_step(self) -> Plan:
        """Choose what the next step computes; an empty plan means there is nothing to do."""
        plan = Plan()
        budget = self._plan_running(plan, self._config.token_budget)
        if not plan.preempted:
            self._admit_waiting(plan, budget)
        return plan

    def advance(self, plan: Plan, sampled: dict[str, int]) -> list[Sequence]:
        """Book the step's tokens and return the sequences that reached their length."""
        for share in plan.shares:
            share.sequence.computed += share.count
            if share.sequence.request_id in sampled:
                share.sequence.tokens.append(sampled[share.sequence.request_id])
        return [s.sequence for s in plan.shares if s.sequence.output_length >= s.sequence.max_tokens]

    def _plan_running(self, plan: Plan, budget: int) -> int:
        index = 0
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            count = min(sequence.pending, budget)
            if not self._make_room(sequence, count, plan):
                break  # the sequence itself was the youngest and is preempted
            plan.shares.append(Share(sequence, sequence.computed, count, sequence.is_prefilling))
            budget -= count
            index += 1
        return budget

    def _make_room(self, sequence: Sequence, count: int, plan: Plan) -> bool:
        while not self._reserve(sequence, count):
            victim = self.running.pop()
            self._release(victim)
            victim.computed = 0
            victim.preemptions += 1
            self.waiting.appendleft(victim)
            plan.preempted.append(victim)
            if victim is sequence:
                return False
        return True

    def _admit_waiting(self, plan: Plan, budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self._config.max_batch:
            sequence = self.waiting[0]
            count = min(sequence.pending, budget)
            if not self._reserve(sequence, count):
                return
            self.waiting.popleft()
            self.running.append(sequence)
            plan.joined.append(sequence)
            plan.shares.append(Share(sequence, sequence.computed, count, sequence.is_prefilling))
            budget -= count

    def _reserve(self, sequence: Sequence, count: int) -> bool:
        needed = -(-(sequence.computed + count) // self._config.block_tokens) - len(sequence.blocks)
        if needed > len(self._free_blocks):
            return False
        for _ in range(needed):
            sequence.blocks.append(self._free_blocks.pop())
        return True

    def _release(self, sequence: Sequence) -> None:
        self._free_blocks.extend(sequence.blocks)
        sequence.blocks.clear()

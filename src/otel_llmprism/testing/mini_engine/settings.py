# What a run of the mini engine is made of: the model's shape, the engine's limits, the load on it.
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ModelShape:
    layers: int = 2
    width: int = 64
    heads: int = 8
    vocabulary: int = 512
    seed: int = 0


@dataclass(frozen=True, slots=True)
class EngineConfig:
    max_batch: int = 32
    kv_blocks: int = 256
    block_tokens: int = 16
    token_budget: int = 256
    ranks: int = 1
    shape: ModelShape = field(default_factory=ModelShape)

    @property
    def capacity_tokens(self) -> int:
        """Tokens that one request may reach: more would never fit and be preempted for ever."""
        return self.kv_blocks * self.block_tokens


@dataclass(frozen=True, slots=True)
class LoadConfig:
    requests: int = 100
    seconds: float = 0.0  # 0: until `requests` are done
    rate_per_s: float = 20.0
    closed: int = 0  # > 0: keep this many in flight instead of open-loop Poisson arrivals
    prompt_tokens: int = 64
    output_tokens: int = 32
    cancel_share: float = 0.0
    sampled_share: float = 1.0
    canary_prompt: str = ""
    seed: int = 0

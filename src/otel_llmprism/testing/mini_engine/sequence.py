# One request inside the engine: its tokens, how much of them is computed, the KV blocks it holds.
from dataclasses import dataclass, field


@dataclass(slots=True)
class Sequence:
    request_id: str
    tokens: list[int]  # prompt, then output
    prompt_length: int
    max_tokens: int
    arrival: int  # order of arrival
    computed: int = 0  # tokens whose keys and values are in the cache
    blocks: list[int] = field(default_factory=list)
    preemptions: int = 0
    handle: int = 0  # what the recorder calls this request

    @property
    def output_length(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def pending(self) -> int:
        """Tokens still to compute before the next one can be sampled."""
        return len(self.tokens) - self.computed

    @property
    def is_prefilling(self) -> bool:
        return self.computed < self.prompt_length

# How many tokens a step has, counted and held against what the engine tells. Scheduled tokens in, sums out;
# an engine whose sums were wrong once is never believed again.
from collections.abc import Mapping


class TokenSums:
    """One engine's sums over its steps."""

    def __init__(self) -> None:
        self.are_trusted = True

    def count_tokens(
        self, tokens: Mapping[str, int], counted_prompt: int, total: int | None, prompt: int | None
    ) -> tuple[int, int | None]:
        """Return all tokens, and those beside the prompts' where each request is known to have some.

        `total` and `prompt`: what the engine tells, None where it tells nothing.
        """
        counted = sum(tokens.values())
        if total is not None and total != counted:
            self.are_trusted = False
        if prompt is not None and prompt != counted_prompt:
            self.are_trusted = False
        is_told = total is not None and self.are_trusted
        return counted, counted - counted_prompt if is_told else None

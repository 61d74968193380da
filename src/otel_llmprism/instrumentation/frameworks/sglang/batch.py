# What one of SGLang's batches asks of the model: its lists in, tokens a request out. Reads Python numbers
# only: a look at one of its tensors could wait for the device.
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DECODING = ("DECODE", "TARGET_VERIFY")
# No model step: placeholders that keep other ranks company, and prompts that another engine computed.
WITHOUT_WORK = ("IDLE", "PREBUILT")


@dataclass(frozen=True, slots=True)
class BatchWork:
    tokens: Mapping[str, int]  # of each request in this step
    had: Mapping[str, int]  # of those whose prompt is computed: tokens it need not compute any more
    prefill_tokens: int
    kv_tokens: int  # computed before and in this step, over all

    @property
    def prefill(self) -> Sequence[str]:
        return [*self.had]


def read_batch(batch: Any) -> BatchWork | None:
    """Read a batch that is about to run; None when it gives no request a token."""
    mode = batch.forward_mode.name
    if mode in WITHOUT_WORK or not batch.reqs:
        return None
    return _read_decode(batch) if mode in DECODING else _read_extend(batch)


def _read_decode(batch: Any) -> BatchWork:
    # What speculation adds is known when the result is back; a token a request is what was planned.
    total = batch.seq_lens_sum
    if not isinstance(total, int):
        total = sum(len(req.origin_input_ids) + len(req.output_ids) for req in batch.reqs)
    return BatchWork({req.rid: 1 for req in batch.reqs}, {}, 0, total)


def _read_extend(batch: Any) -> BatchWork:
    lengths, prefixes = batch.extend_lens, batch.prefix_lens
    decoding = {req.rid for req in batch.decoding_reqs or ()} if batch.forward_mode.name == "MIXED" else ()
    tokens = {req.rid: length for req, length in zip(batch.reqs, lengths, strict=True)}
    had = {
        req.rid: prefix
        for req, prefix in zip(batch.reqs, prefixes, strict=True)
        if req.rid not in decoding and tokens[req.rid]
    }
    prefill_tokens = sum(tokens[rid] for rid in had)
    given = {rid: count for rid, count in tokens.items() if count}
    return BatchWork(given, had, prefill_tokens, sum(given.values()) + sum(prefixes))

# One rank's shard of a small transformer in numpy: paged keys and values, causal attention, an MLP.
# Its cost is real work: it grows with prefill tokens, with decode sequences and with KV length.
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from otel_llmprism.testing.mini_engine.settings import EngineConfig
from otel_llmprism.testing.mini_engine.work import Ints, StepWork

Floats = npt.NDArray[np.float32]
AllReduce = Callable[[Floats], Floats]


class ModelShard:
    """Heads and MLP columns are split over the ranks; `all_reduce` adds the partial results."""

    def __init__(self, config: EngineConfig, rank: int) -> None:
        shape = config.shape
        self._heads = shape.heads // config.ranks
        self._head_width = shape.width // shape.heads
        random = np.random.default_rng(shape.seed)  # equal on every rank: shards of the same weights
        self._embedding = _draw(random, shape.vocabulary, shape.width)
        self._layers = [_draw_layer(random, shape.width, rank, config.ranks) for _ in range(shape.layers)]
        cache = (shape.layers, 2, config.kv_blocks, config.block_tokens, self._heads, self._head_width)
        self._cache = np.zeros(cache, dtype=np.float32)
        self._block_tokens = config.block_tokens

    def compute_logits(self, work: StepWork, all_reduce: AllReduce) -> Floats:
        """Run the step; return the logits of the last token of every sequence."""
        hidden = self._embedding[work.tokens]
        places = locate_tokens(work, self._block_tokens)
        for index, (qkv, out, up, down) in enumerate(self._layers):
            attended = self._attend(_normalise(hidden) @ qkv, self._cache[index], work, places)
            hidden = hidden + all_reduce(attended @ out)
            hidden = hidden + all_reduce(np.maximum(_normalise(hidden) @ up, 0) @ down)
        last = np.cumsum(work.counts) - 1
        logits: Floats = _normalise(hidden[last]) @ self._embedding.T
        return logits

    def _attend(self, qkv: Floats, cache: Floats, work: StepWork, places: tuple[Ints, Ints]) -> Floats:
        shaped = qkv.reshape(len(qkv), 3, self._heads, self._head_width)
        cache[0][places] = shaped[:, 1]
        cache[1][places] = shaped[:, 2]
        output = np.empty((len(qkv), self._heads * self._head_width), dtype=np.float32)
        row = 0
        for start, count, table in zip(work.starts, work.counts, work.tables, strict=True):
            total = int(start + count)
            keys, values = (
                part[table].reshape(-1, self._heads, self._head_width)[:total].transpose(1, 0, 2)
                for part in (cache[0], cache[1])
            )
            queries = shaped[row : row + count, 0].transpose(1, 0, 2)
            scores = queries @ keys.transpose(0, 2, 1) / np.float32(self._head_width**0.5)
            if count > 1:
                scores += np.triu(np.full((count, total), -1e9, dtype=np.float32), k=int(start) + 1)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            output[row : row + count] = (weights @ values).transpose(1, 0, 2).reshape(count, -1)
            row += int(count)
        return output


def locate_tokens(work: StepWork, block_tokens: int) -> tuple[Ints, Ints]:
    """Return the KV block and the row in it of every token of the step."""
    blocks, rows = [], []
    for start, count, table in zip(work.starts, work.counts, work.tables, strict=True):
        positions = np.arange(start, start + count)
        blocks.append(table[positions // block_tokens])
        rows.append(positions % block_tokens)
    return np.concatenate(blocks), np.concatenate(rows).astype(np.int32)


def _draw(random: np.random.Generator, rows: int, columns: int) -> Floats:
    return random.standard_normal((rows, columns), dtype=np.float32) / np.float32(rows**0.5)


def _draw_layer(random: np.random.Generator, width: int, rank: int, ranks: int) -> tuple[Floats, ...]:
    qkv = _draw(random, width, 3 * width).reshape(width, 3, ranks, width // ranks)
    out = _draw(random, width, width).reshape(ranks, width // ranks, width)
    up = _draw(random, width, 4 * width).reshape(width, ranks, 4 * width // ranks)
    down = _draw(random, 4 * width, width).reshape(ranks, 4 * width // ranks, width)
    return np.ascontiguousarray(qkv[:, :, rank]).reshape(width, -1), out[rank], up[:, rank], down[rank]


def _normalise(hidden: Floats) -> Floats:
    scaled: Floats = hidden / (np.sqrt((hidden**2).mean(axis=-1, keepdims=True)) + np.float32(1e-6))
    return scaled

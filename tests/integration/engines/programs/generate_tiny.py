# Generates with a tiny random model and knows nothing of us: greedy, a batch, sampling with several answers,
# beams, assistance, a failure. Writes what it asked and got to the file it is given.
import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from opentelemetry import trace
from transformers import LlamaConfig, LlamaForCausalLM

PROMPT = 7
NEW = 5


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    asked = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, assistant = build_model(), build_model()
    calls: list[dict[str, Any]] = []

    def call(name: str, rows: int, **settings: Any) -> None:
        ids = torch.randint(3, 60, (rows, PROMPT))
        result = model.generate(ids, max_new_tokens=NEW, eos_token_id=None, pad_token_id=0, **settings)
        calls.append({"name": name, "prompt": ids.numel(), "shape": list(result.shape)})

    call("greedy", 1)
    call("batch", 3)
    call("several", 1, do_sample=True, num_return_sequences=2)
    call("beams", 1, num_beams=2)
    call("uncached", 1, use_cache=False)
    call("assisted", 1, assistant_model=assistant)
    try:
        model.generate(torch.randint(3, 60, (1, PROMPT)), max_new_tokens=NEW, logits_processor=[fail])
    except RuntimeError:
        calls.append({"name": "failed", "prompt": PROMPT, "shape": [0, 0]})
    with trace.get_tracer("program").start_as_current_span("caller") as span:
        call("traced", 1)
        context = span.get_span_context()
        calls[-1] |= {"trace": f"{context.trace_id:032x}", "span": f"{context.span_id:016x}"}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: call("parallel", 1), range(8)))
    asked.file.write_text(json.dumps(calls))


def build_model() -> Any:
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    return LlamaForCausalLM(config).eval()


def fail(_ids: Any, _scores: Any) -> Any:
    message = "a processor of the user's own"
    raise RuntimeError(message)


if __name__ == "__main__":
    main()

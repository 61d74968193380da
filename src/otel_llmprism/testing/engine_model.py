# A language model's folder of a few kB: configuration and a word tokenizer, no weights (engines fill them
# with random numbers). Real enough for a real engine to serve; what it says means nothing.
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VOCABULARY = 512
MAX_LENGTH = 2048
SPECIAL_WORDS = ("<unk>", "<s>", "</s>")

_CONFIG: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": MAX_LENGTH,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "float32",  # bfloat16 kernels end on some virtual processors with AMX
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
}
_TOKENIZER_CONFIG: Mapping[str, Any] = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
}


def write_model(folder: Path) -> Path:
    """Write the model into `folder` and return it: one word is one token, unknown words are `<unk>`."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "config.json": _CONFIG,
        "tokenizer.json": _describe_tokenizer(),
        "tokenizer_config.json": _TOKENIZER_CONFIG,
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
    return folder


def spell_word(token: int) -> str:
    """Return the word of a token id."""
    return SPECIAL_WORDS[token] if token < len(SPECIAL_WORDS) else f"w{token}"


def _describe_tokenizer() -> dict[str, Any]:
    special = [
        {
            "id": token,
            "content": word,
            "special": True,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for token, word in enumerate(SPECIAL_WORDS)
    ]
    model = {
        "type": "WordLevel",
        "vocab": {spell_word(token): token for token in range(VOCABULARY)},
        "unk_token": SPECIAL_WORDS[0],
    }
    nothing = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    return {
        "version": "1.0",
        **nothing,
        "added_tokens": special,
        "pre_tokenizer": {"type": "Whitespace"},
        "model": model,
    }

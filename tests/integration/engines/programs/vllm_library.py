# A user's program with vLLM as a library: two engines, one after the other, each answering a few prompts.
# Arguments: the model's folder, and a file for what it was told.
import gc
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

PROMPTS = (["w5 w6 w7", "w8 w9", "w10"], ["w11 w12"])
NEW = 6


def main(model: str, told: Path) -> None:
    vllm = import_module("vllm")  # not above: the engine's process begins by importing this file
    answers: list[list[dict[str, Any]]] = []
    for prompts in PROMPTS:
        engine = vllm.LLM(
            model,
            load_format="dummy",
            enforce_eager=True,
            dtype="float32",
            max_model_len=256,
            max_num_seqs=8,
        )
        outputs = engine.generate(prompts, vllm.SamplingParams(max_tokens=NEW, ignore_eos=True))
        answers.append(
            [
                {"prompt": len(output.prompt_token_ids), "output": len(output.outputs[0].token_ids)}
                for output in outputs
            ]
        )
        del engine
        gc.collect()
    told.write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

# A Hugging Face Trainer with a tiny random model: gradient accumulation, evaluations and checkpoints. Knows
# nothing of us; writes what the Trainer itself says it did.
import argparse
import json
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

STEPS = 12
ACCUMULATE = 2


class Texts(torch.utils.data.Dataset):  # type: ignore[misc]
    """Random token ids."""

    def __init__(self, count: int) -> None:
        self._ids = torch.randint(3, 60, (count, 16))

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._ids[at], "labels": self._ids[at]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model: Any = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    )
    settings = TrainingArguments(
        output_dir=str(asked.folder / "checkpoints"),
        max_steps=STEPS,
        gradient_accumulation_steps=ACCUMULATE,
        per_device_train_batch_size=2,
        eval_strategy="steps",
        eval_steps=4,
        save_strategy="steps",
        save_steps=6,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=settings, train_dataset=Texts(200), eval_dataset=Texts(40))
    trainer.train()
    done = {"steps": trainer.state.global_step, "evaluations": STEPS // 4, "checkpoints": STEPS // 6}
    (asked.folder / "trainer.json").write_text(json.dumps(done))


if __name__ == "__main__":
    main()

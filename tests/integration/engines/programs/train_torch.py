# A training that knows nothing of us: a tiny model, DDP over gloo when torchrun started it, a DataLoader,
# some evaluations and a checkpoint. Writes what it did itself, by its own clock, to the folder it is given.
import argparse
import atexit
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

BATCHES_AN_EPOCH = 10


IS_DONE: list[bool] = []


def leave_at_once() -> None:
    """Skip the destruction of gloo's threads, which aborts one exit in ten or so, with us or without."""
    if IS_DONE:
        os._exit(0)


def main() -> None:
    atexit.register(leave_at_once)  # the first that is registered is the last that runs
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--slow-rank", type=int, default=-1)
    parser.add_argument("--slow-ms", type=float, default=30.0)
    parser.add_argument("--compile", action="store_true")
    asked = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK", "0"))
    is_group = "WORLD_SIZE" in os.environ
    if is_group:
        dist.init_process_group("gloo")
    model: nn.Module = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    if is_group:
        model = DistributedDataParallel(model)
    train(model, asked, rank)
    if is_group:
        dist.destroy_process_group()
    IS_DONE.append(True)


def train(model: nn.Module, asked: argparse.Namespace, rank: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    compute = torch.compile(model, backend="eager") if asked.compile else model
    data = TensorDataset(torch.randn(BATCHES_AN_EPOCH * 4, 64), torch.randint(0, 8, (BATCHES_AN_EPOCH * 4,)))
    ends_ns: list[int] = []
    pauses_ns: list[tuple[int, int]] = []
    micro = 0
    while len(ends_ns) < asked.iterations:
        for features, labels in DataLoader(data, batch_size=4):
            if rank == asked.slow_rank:
                time.sleep(asked.slow_ms / 1e3)
            loss = nn.functional.cross_entropy(compute(features), labels)
            loss.backward()
            micro += 1
            if micro % asked.accumulate:
                continue
            optimizer.step()
            optimizer.zero_grad()
            ends_ns.append(time.monotonic_ns())
            if len(ends_ns) == asked.iterations:
                break
        pauses_ns.append(evaluate(model, data))
        pauses_ns.append(save(model, asked.folder / f"rank{rank}.pt"))
    done = {"rank": rank, "ends_ns": ends_ns, "pauses_ns": pauses_ns, "micro_batches": micro}
    (asked.folder / f"rank{rank}.json").write_text(json.dumps(done))


def evaluate(model: nn.Module, data: TensorDataset) -> tuple[int, int]:
    start_ns = time.monotonic_ns()
    model.eval()
    with torch.no_grad():
        for features, _ in DataLoader(data, batch_size=4):
            model(features)
    time.sleep(0.05)
    model.train()
    return start_ns, time.monotonic_ns()


def save(model: nn.Module, path: Path) -> tuple[int, int]:
    start_ns = time.monotonic_ns()
    torch.save(model.state_dict(), path)
    return start_ns, time.monotonic_ns()


if __name__ == "__main__":
    main()

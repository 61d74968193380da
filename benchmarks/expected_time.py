# How well a step's time is foretold from its work on measured attention kernels that nobody here timed, with
# whole groups held out, beside simpler models; and what an answer costs. `python benchmarks/expected_time.py
# [--write]`; the data: $LLMPRISM_SHARED_DATA/baseline (default ../shared/data).
import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import lightgbm
import numpy as np
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GroupKFold

from otel_llmprism.baseline.expected import FitSettings, fit_expected
from otel_llmprism.model.work import WorkTable

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("LLMPRISM_SHARED_DATA", ROOT.parent / "shared" / "data"))
FILE = DATA / "baseline" / "llama31_8b_rtx4090_attention.csv"
RESULTS = ROOT / "benchmarks" / "results" / "expected_time.md"
NAMES = ("prefill_tokens", "prefill_kv", "decode_tokens", "decode_kv")
SPLITS = {"n_decode": 2, "prefill_chunk": 0}
Predict = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def to_work(rows: np.ndarray) -> WorkTable:
    return WorkTable(np.zeros(len(rows), np.uint8), NAMES, rows)


def build_ours(settings: FitSettings) -> Predict:
    def predict(train: np.ndarray, time_us: np.ndarray, groups: np.ndarray, test: np.ndarray) -> np.ndarray:
        cycle_ns = np.round(time_us * 1000).astype(np.uint64)
        model = fit_expected(to_work(train), cycle_ns, groups.astype(np.int64), settings, seed=0)
        return model.predict(to_work(test)).expected_ns / 1000

    return predict


def add_products(rows: np.ndarray) -> np.ndarray:
    """The paper's features: batch, input, output length as KV, batch x KV, chunk x KV, compute tokens."""
    chunk, prefill_kv, batch, kv = rows.T
    total = prefill_kv + chunk
    return np.column_stack([rows, batch * kv, chunk * total, chunk * chunk, total, batch + chunk])


def predict_linear(
    train: np.ndarray, time_us: np.ndarray, _groups: np.ndarray, test: np.ndarray
) -> np.ndarray:
    model = LinearRegression().fit(add_products(train), time_us)
    return np.maximum(model.predict(add_products(test)), time_us.min())


def predict_paper(
    train: np.ndarray, time_us: np.ndarray, _groups: np.ndarray, test: np.ndarray
) -> np.ndarray:
    model = GradientBoostingRegressor(n_estimators=200, learning_rate=0.1, max_depth=4, random_state=0)
    return model.fit(add_products(train), time_us).predict(add_products(test))


def build_trees(has_products: bool) -> Predict:
    def predict(train: np.ndarray, time_us: np.ndarray, _groups: np.ndarray, test: np.ndarray) -> np.ndarray:
        prepare = add_products if has_products else np.asarray
        parameters = {"objective": "regression", "verbosity": -1, "seed": 0, "num_threads": 1}
        booster = lightgbm.train(parameters, lightgbm.Dataset(prepare(train), np.log(time_us)), 300)
        return np.exp(booster.predict(prepare(test)))

    return predict


MODELS: dict[str, Predict] = {
    "linear in work and its products": predict_linear,
    "the paper's recipe: 200 trees, rate 0.1, depth 4, raw target": predict_paper,
    "trees alone on log time, raw columns": build_trees(has_products=False),
    "trees alone on log time, with products": build_trees(has_products=True),
    "our structure alone": build_ours(replace(FitSettings(), use_trees=False)),
    "our structured model": build_ours(FitSettings()),
}


def read_data() -> tuple[np.ndarray, np.ndarray]:
    table = np.loadtxt(FILE, delimiter=",", skiprows=1)
    return table[:, :4], table[:, 4]


def measure_errors(predict: Predict, column: int) -> np.ndarray:
    """Out-of-fold |predicted / measured - 1| of every row."""
    rows, time_us = read_data()
    error = np.empty(len(rows))
    for seen, held in GroupKFold(5).split(rows, groups=rows[:, column]):
        answer = predict(rows[seen], time_us[seen], rows[seen, column], rows[held])
        error[held] = np.abs(answer / time_us[held] - 1)
    return error


def measure_cost() -> list[str]:
    """CPU time of predict, in blocks as the processor scores them."""
    rows, time_us = read_data()
    cycle_ns = np.round(time_us * 1000).astype(np.uint64)
    model = fit_expected(to_work(rows), cycle_ns, rows[:, 2].astype(np.int64), FitSettings(), seed=0)
    lines = ["| steps at once | us a step, CPU, median |", "|---|---|"]
    for count in (1, 64, 256, 2048):
        work, taken = to_work(rows[:count]), []
        for _ in range(30):
            begin = time.process_time()
            model.predict(work)
            taken.append((time.process_time() - begin) / count * 1e6)
        lines.append(f"| {count} | {statistics.median(taken):.1f} |")
    return lines


def build_report() -> str:
    lines = [
        "# How well a step's time is foretold from its work",
        "",
        "`python benchmarks/expected_time.py --write`: 8,643 attention kernels of Llama 3.1 8B on an RTX",
        "4090 (LLMServingSim), whole groups held out, GroupKFold(5). MAPE pooled over rows, in percent.",
        f"Python {platform.python_version()}, numpy {np.__version__}, lightgbm {version('lightgbm')}.",
        "To reach: 6 % on both.",
        "",
        "| model | by n_decode | by prefill_chunk | prefill / mixed / decode rows, by n_decode | by chunk |",
        "|---|---|---|---|---|",
    ]
    rows, _ = read_data()
    regions = (rows[:, 2] == 0, (rows[:, 0] > 0) & (rows[:, 2] > 0), rows[:, 0] == 0)
    ours: dict[str, np.ndarray] = {}
    for name, predict in MODELS.items():
        errors = {split: measure_errors(predict, column) for split, column in SPLITS.items()}
        cells = [f"{errors[split].mean():.1%}" for split in SPLITS]
        cells += [" / ".join(f"{errors[split][region].mean():.1%}" for region in regions) for split in SPLITS]
        lines.append("| " + " | ".join([name, *cells]) + " |")
        print(lines[-1], flush=True)
        ours = errors
    lines += ["", "Where the structured model misses, by the group that was held out:", ""]
    for split, column in SPLITS.items():
        by_group = ", ".join(
            f"{value:.0f}: {ours[split][rows[:, column] == value].mean():.1%}"
            for value in np.unique(rows[:, column])
        )
        lines.append(f"- {split} {by_group}")
    return "\n".join([*lines, "", "What an answer costs (to reach: 20 us amortised, 1,000 us single):", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="How well a step's time is foretold from its work.")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    text = build_report() + "\n" + "\n".join(measure_cost()) + "\n"
    print(text)
    if arguments.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()

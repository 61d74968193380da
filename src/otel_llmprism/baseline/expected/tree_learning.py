# Learns trees with LightGBM, when it is installed, and turns them into our own arrays at once. The first
# inputs may only add time. Knows no structure: what it learns is whatever log time it is given.
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from otel_llmprism.baseline.expected.settings import FitSettings
from otel_llmprism.baseline.expected.trees import DEPTH, LEAVES, SPLITS, Trees
from otel_llmprism.model.steps import F64

LOG_OF_ONE = float(np.log1p(1.0))
Ramp = tuple[int, float, float]  # feature, low, high


def has_learner() -> bool:
    """Tell whether trees can be learned here."""
    return find_spec("lightgbm") is not None


def learn_trees(inputs: F64, target: F64, monotone: int, settings: FitSettings, seed: int) -> Trees:
    """Return trees for the target; more of the first `monotone` inputs never lowers their sum."""
    parameters = {
        "objective": "huber",
        "alpha": 0.1,
        "learning_rate": settings.tree_rate,
        "num_leaves": LEAVES,
        "max_depth": DEPTH,
        "min_data_in_leaf": max(5, min(20, len(target) // 100)),
        "min_data_in_bin": 1,
        "lambda_l2": 1.0,
        "monotone_constraints": [1] * monotone + [0] * (inputs.shape[1] - monotone),
        # Only this method keeps every leaf on the left below every one on the right, which ramps need.
        "monotone_constraints_method": "basic",
        "feature_pre_filter": False,
        "deterministic": True,
        "force_col_wise": True,
        "num_threads": 1,
        "seed": seed & 0x7FFFFFFF,
        "verbosity": -1,
    }
    import lightgbm  # noqa: PLC0415 - half a second and 100 MB: only who learns pays them

    data = lightgbm.Dataset(inputs, target)
    booster = lightgbm.train(parameters, data, settings.trees)
    return _convert(booster.dump_model()["tree_info"], inputs, monotone - 1)


def _convert(told: list[Mapping[str, Any]], inputs: F64, counted: int) -> Trees:
    seen = [np.unique(column) for column in inputs.T]
    ramps: dict[Ramp, int] = {(0, 0.0, 1.0): 0}
    places = np.zeros((len(told), SPLITS), np.int32)
    leaves = np.zeros((len(told), LEAVES), np.float32)
    for number, tree in enumerate(told):
        todo = [(tree["tree_structure"], 0)]
        while todo:
            node, place = todo.pop()
            if place >= SPLITS:
                leaves[number, place - SPLITS] = node["leaf_value"]
                continue
            # A leaf above the last level stands for all leaves below it.
            left, right = node.get("left_child", node), node.get("right_child", node)
            if left is not node:
                feature = node["split_feature"]
                ramp = _find_ramp(feature, node["threshold"], seen[feature], is_log=feature < counted)
                places[number, place] = ramps.setdefault(ramp, len(ramps))
            todo += [(left, 2 * place + 1), (right, 2 * place + 2)]
    table = np.array(list(ramps))
    return Trees(table[:, 0].astype(np.int32), table[:, 1], table[:, 2], places, leaves)


def _find_ramp(feature: int, threshold: float, values: F64, is_log: bool) -> Ramp:
    above = int(np.clip(np.searchsorted(values, threshold, side="right"), 1, len(values) - 1))
    low, high = float(values[above - 1]), float(values[above])
    # None of some work and a little of it are different kinds of step: nothing is interpolated between them.
    return feature, low, min(high, LOG_OF_ONE) if is_log and low == 0 else high

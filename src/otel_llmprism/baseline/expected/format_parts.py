# One part of a model as a JSON object plus arrays, and back with every bound checked: sizes first, then
# values. The order of the arrays is that of the functions here, the same for writing and reading.
from typing import Any

import numpy as np

from otel_llmprism.baseline.expected.features import MAX_MODES, MAX_WORK, FeatureSpace
from otel_llmprism.baseline.expected.format_checks import AnyArray, FormatReader, refuse
from otel_llmprism.baseline.expected.part import MAX_CORRECTION, MAX_LOG_NS, Curve, KindPart, PartReport
from otel_llmprism.baseline.expected.structure import MAX_POWER, Structure
from otel_llmprism.baseline.expected.support import MAX_PLACES, MAX_REGIONS, Support
from otel_llmprism.baseline.expected.trees import LEAVES, SPLITS, Trees

MAX_NAMES = 64
MAX_NAME_CHARACTERS = 200
MAX_STRUCTURES = 4
MAX_MEMBERS = 16
MAX_RESOURCES = 16
MAX_TERMS = 256
MAX_TREES = 2000
MAX_RAMPS = MAX_TREES * SPLITS
MAX_INPUT = 1e30
MAX_LEVEL = 1e4
MAX_SPREAD = 1e3
MAX_STEPS = 1 << 53


def describe_part(part: KindPart, arrays: list[AnyArray]) -> dict[str, Any]:
    """Return the part's place in the header; append its arrays."""
    space, curve, trees, support = part.space, part.curve, part.curve.trees, part.support
    arrays += [space.work_fill, space.free_fill, space.modes]
    for one in curve.structures:
        arrays += [one.level, one.log_hinge, one.power, one.sharpness]
    arrays += [curve.mode_offset, trees.ramp_feature, trees.ramp_low, trees.ramp_high, trees.ramp, trees.leaf]
    arrays += [support.places, support.edges, support.spread]
    report = part.report
    return {
        "kind": part.kind, "earned": int(part.is_earned),
        "work": list(space.work_names), "free": list(space.free_names), "modes": len(space.modes),
        "pairs": [place for pair in space.pairs for place in pair],
        "structures": [
            {"members": one.level.shape[0], "terms": one.level.shape[1], "resources": one.resources}
            for one in curve.structures
        ],
        "weight": curve.weight, "low": curve.low, "high": curve.high,
        "ramps": len(trees.ramp_feature), "trees": len(trees.ramp),
        "places": len(support.places), "edges": len(support.edges),
        "reach": support.reach, "widening": support.widening,
        "steps": report.steps, "groups": report.groups, "mape": report.mape,
        "within_10pct": report.within_10pct, "coverage": report.coverage, "spread": report.spread,
    }  # fmt: skip


def read_part(reader: FormatReader, told: dict[str, Any]) -> KindPart:
    """Return the part; the reader stands at its first array."""
    space = _read_space(reader, told)
    shapes = reader.read_objects(told, "structures", MAX_STRUCTURES)
    if not shapes:
        refuse("a part has no structure")
    structures = tuple(_read_structure(reader, shape, len(space.work_names)) for shape in shapes)
    curve = _read_curve(reader, told, space, structures)
    return KindPart(
        reader.read_count(told, "kind", 0, 255),
        bool(reader.read_count(told, "earned", 0, 1)),
        space,
        curve,
        _read_support(reader, told, len(space.work_names)),
        PartReport(
            reader.read_count(told, "steps", 0, MAX_STEPS),
            reader.read_count(told, "groups", 0, MAX_STEPS),
            reader.read_number(told, "mape", 0.0, 1e6),
            reader.read_number(told, "within_10pct", 0.0, 1.0),
            reader.read_number(told, "coverage", 0.0, 1.0),
            reader.read_number(told, "spread", 0.0, MAX_SPREAD),
        ),
    )


def _read_space(reader: FormatReader, told: dict[str, Any]) -> FeatureSpace:
    work = reader.read_texts(told, "work", MAX_NAMES, MAX_NAME_CHARACTERS)
    free = reader.read_texts(told, "free", MAX_NAMES, MAX_NAME_CHARACTERS)
    modes = reader.read_count(told, "modes", 0, MAX_MODES)
    flat = told.get("pairs")
    if not isinstance(flat, list) or len(flat) % 2 or len(flat) > 2 * MAX_NAMES:
        refuse("pairs is no short list of pairs")
    if not all(type(place) is int and 0 <= place < len(work) for place in flat):
        refuse("a pair names a feature that is not there")
    fills = [reader.read_array("f8", (len(names),), 0.0, MAX_WORK) for names in (work, free)]
    seen = reader.read_array("f8", (modes,), 0.0, MAX_WORK)
    if (np.diff(seen) <= 0).any():
        refuse("the modes are not in order")
    pairs = tuple(zip(flat[::2], flat[1::2], strict=True))
    return FeatureSpace(work, free, fills[0], fills[1], seen, pairs)


def _read_structure(reader: FormatReader, told: dict[str, Any], features: int) -> Structure:
    members = reader.read_count(told, "members", 1, MAX_MEMBERS)
    terms = reader.read_count(told, "terms", 1, MAX_TERMS)
    resources = reader.read_count(told, "resources", 1, MAX_RESOURCES)
    if terms % resources:
        refuse("the terms do not divide among the resources")
    return Structure(
        resources,
        reader.read_array("f8", (members, terms), -MAX_LEVEL, MAX_LEVEL),
        reader.read_array("f8", (members, terms, features), -MAX_LEVEL, MAX_LEVEL),
        reader.read_array("f8", (members, terms, features), 0.0, MAX_POWER),
        reader.read_array("f8", (members,), 1.0, 1e3),
    )


def _read_curve(
    reader: FormatReader, told: dict[str, Any], space: FeatureSpace, structures: tuple[Structure, ...]
) -> Curve:
    ramps = reader.read_count(told, "ramps", 0, MAX_RAMPS)
    trees = reader.read_count(told, "trees", 0, MAX_TREES)
    if trees and not ramps:
        refuse("its trees have no splits")
    low = reader.read_number(told, "low", -MAX_LEVEL, MAX_LEVEL)
    high = reader.read_number(told, "high", low, MAX_LEVEL)
    weight = reader.read_number(told, "weight", 0.0, 1.0)
    inputs = len(space.work_names) + len(space.pairs) + 1 + len(space.free_names) + 1
    offset = reader.read_array("f8", (len(space.modes),), -MAX_CORRECTION, MAX_CORRECTION)
    grown = Trees(
        reader.read_array("i4", (ramps,), 0, inputs - 1),
        reader.read_array("f8", (ramps,), -MAX_INPUT, MAX_INPUT),
        reader.read_array("f8", (ramps,), -MAX_INPUT, MAX_INPUT),
        reader.read_array("i4", (trees, SPLITS), 0, max(0, ramps - 1)),
        reader.read_array("f4", (trees, LEAVES), -MAX_LOG_NS, MAX_LOG_NS),
    )
    if (grown.ramp_high - grown.ramp_low <= 0).any():
        refuse("a split does not rise")
    return Curve(structures, offset, weight, low, high, grown)


def _read_support(reader: FormatReader, told: dict[str, Any], features: int) -> Support:
    places = reader.read_count(told, "places", 1, MAX_PLACES)
    edges = reader.read_count(told, "edges", 0, MAX_REGIONS)
    support = Support(
        reader.read_array("f8", (places, features), 0.0, 64.0),
        reader.read_number(told, "reach", 0.0, 64.0),
        reader.read_array("f8", (edges,), -MAX_LOG_NS, MAX_LOG_NS),
        reader.read_array("f8", (edges + 1,), 0.0, MAX_SPREAD),
        reader.read_number(told, "widening", 0.0, 100.0),
    )
    if (np.diff(support.edges) < 0).any():
        refuse("the regions are not in order")
    return support

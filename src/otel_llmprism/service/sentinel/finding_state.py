# Findings as JSON and back, for the state that survives a restart. Anything unexpected is refused as a whole.
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from otel_llmprism.model.findings import Affected, Evidence, Finding, FindingState, StepRef, Subject


def to_json(finding: Finding) -> dict[str, Any]:
    return asdict(finding)


def from_json(raw: Mapping[str, Any]) -> Finding:
    """Return the finding; ValueError for anything that is none."""
    try:
        own = dict(raw)
        own["subject"] = Subject(**own["subject"])
        own["state"] = FindingState(own["state"])
        own["evidence"] = tuple(Evidence(**one) for one in own["evidence"])
        own["affected"] = Affected(**{key: tuple(value) for key, value in own["affected"].items()})
        own["steps"] = tuple(StepRef(**one) for one in own["steps"])
        own["engines"] = tuple(own["engines"])
        return Finding(**own)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError("this is no finding") from error

# What a check finds: one line each, for people and as JSON. Knows no check.
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

SCHEMA = "llmprism.doctor/1"


@dataclass(frozen=True, slots=True)
class Report:
    """One line: `level` is ok, note (works without) or fail (something asked for cannot work)."""

    level: str
    what: str
    says: str
    mend: str = ""


def format_lines(reports: Sequence[Report]) -> str:
    """Return one line a report, subjects aligned."""
    width = max(len(report.what) for report in reports)
    lines = []
    for report in reports:
        mend = f"; {report.mend}" if report.mend else ""
        lines.append(f"{report.level:4}  {report.what:{width}}  {report.says}{mend}")
    return "\n".join(lines)


def format_json(reports: Sequence[Report]) -> str:
    """Return one object with every report, in order."""
    return json.dumps({"schema": SCHEMA, "checks": [asdict(report) for report in reports]}, indent=2)

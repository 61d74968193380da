# What the demo saw, as JSON for scripts and as lines for people.
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class DemoReport:
    url: str
    steps: int
    engine: dict[str, Any]
    services: list[str]
    step_trace: str | None
    lost: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    fault: str = "none"

    @property
    def is_right(self) -> bool:
        """Whether the injected fault, and no other, was found; without one, whether nothing was."""
        if self.fault == "none":
            return bool(self.steps) and not self.findings
        return bool(self.findings) and all(map(self._is_accepted, self.findings))

    def to_json(self) -> dict[str, Any]:
        """Return the report in the schema of `--json`, with the demo's own keys."""
        return {
            "schema": "llmprism.report/1",
            "url": self.url,
            "injected": self._describe_injected(),
            "steps": {"count": self.steps},
            "findings": self.findings,
            "loss": {"dropped": sum(int(entry["count"]) for entry in self.lost)},
        }

    def to_text(self, again: str = "") -> str:
        """Return what a person wants to read first; `again` brings back a page that ends with the demo."""
        made = self.engine.get("steps", "?")
        lost = (f"{entry['count']} {entry.get('stage')}/{entry.get('cause')}" for entry in self.lost)
        lines = {
            "steps": f"{made} made by the engine, {self.steps} in the processor's ledger",
            "services": ", ".join(self.services) or "none",
            "lost": ", ".join(lost) or "nothing",
            "injected": self.fault,
            "findings": str(len(self.findings)) if self.findings else "none",
            "page": f"{self.url} (ends with the demo; again: {again})" if again else self.url,
        }
        if self.step_trace:
            lines["one step"] = f"{self.url}/trace/{self.step_trace}"
        told = [f"{name:9} {text}" for name, text in lines.items()]
        return "\n".join([*told, *(f"  {tell_finding(finding)}" for finding in self.findings)])

    def _describe_injected(self) -> dict[str, Any] | None:
        return (
            None if self.fault == "none" else {"fault": self.fault, "faults": self.engine.get("faults", [])}
        )

    def _is_accepted(self, finding: dict[str, Any]) -> bool:
        kind, subject = finding["kind"], finding["subject"]
        return any(
            [kind, subject["type"]] in fault["accepted"]
            and (not fault["subjects"] or subject["id"] in fault["subjects"])
            for fault in self.engine.get("faults", [])
        )


def tell_finding(finding: dict[str, Any]) -> str:
    """Return one finding as one line."""
    subject = finding["subject"]
    return f"{finding['kind']} {subject['type']} {subject['id']}: {finding.get('summary', '')}"

# A recording on disk: an engine's ledger, what was injected, the engine's own book, and how it came about.
# Kept outside the clone and used again; knows nothing of how it is judged.
import hashlib
import json
import os
import platform
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from otel_llmprism.native.ledger_layout import parse_anchor
from otel_llmprism.receivers.ledger import LedgerBody
from otel_llmprism.receivers.ledger_files import list_segments, read_segment
from otel_llmprism.testing.evaluation.run_plan import RunPlan
from otel_llmprism.testing.faults.fault_ledger import FaultEntry, read_ledger

FORMAT = 1
CACHE_VARIABLE = "OTEL_LLMPRISM_RECORDINGS"


@dataclass(frozen=True, slots=True)
class TimedBody:
    """A ledger record and when its chunk was closed, on both clocks of its node."""

    monotonic_ns: int
    realtime_ns: int
    body: LedgerBody


@dataclass(frozen=True, slots=True)
class AddedTime:
    """What the injector added in ns: by step id, or by time where it could not know the step."""

    by_step: dict[int, int]
    timed: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Recording:
    folder: Path

    def read_facts(self) -> dict[str, Any]:
        """Return plan, origin, machine and what the engine said of itself."""
        facts: dict[str, Any] = json.loads((self.folder / "recording.json").read_text(encoding="utf-8"))
        return facts

    @property
    def origin_ns(self) -> int:
        return int(self.read_facts()["origin_ns"])

    def list_faults(self) -> list[FaultEntry]:
        return read_ledger(self.folder / "faults.jsonl")

    def list_bodies(self) -> list[TimedBody]:
        """Return all ledger records in order of time; ValueError for what is damaged."""

        def refuse(path: Path, at: int, why: str) -> None:
            raise ValueError(f"{path} at {at}: {why}")

        found = []
        for segment in list_segments(self.folder / "ledger", refuse):
            for body in read_segment(segment, refuse):
                anchor = parse_anchor(body.body)
                found.append(TimedBody(anchor.anchor_monotonic_ns, anchor.anchor_realtime_ns, body))
        return sorted(found, key=lambda timed: timed.monotonic_ns)

    def read_added(self) -> "AddedTime":
        """Return the time that the injector added to steps; ranks delay one together, not in turn."""
        added: dict[tuple[int, str], int] = defaultdict(int)
        for path in sorted(self.folder.glob("injected.jsonl.*")):
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                if "step" in entry:
                    key = (int(entry["step"]), str(entry["fault"]))
                    added[key] = max(added[key], int(entry["added_ns"]))
        sums: dict[int, int] = defaultdict(int)
        for (step, _), spent_ns in added.items():
            sums[step] += spent_ns
        return AddedTime(dict(sums), _read_timed(self.folder))


def _read_timed(folder: Path) -> list[tuple[int, int]]:
    lines = [
        json.loads(line)
        for path in sorted(folder.glob("schedule.jsonl.added.*"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return sorted(
        (int(line["at_ns"]), int(line["added_ns"])) for line in lines if line["place"] != "front_end"
    )


def find_cache() -> Path:
    """Return the folder of recordings: OTEL_LLMPRISM_RECORDINGS, else the user's cache."""
    if asked := os.environ.get(CACHE_VARIABLE, "").strip():
        return Path(asked)
    base = os.environ.get("XDG_CACHE_HOME", "").strip() or str(Path.home() / ".cache")
    return Path(base) / "otel-llmprism" / "recordings"


def name_recording(plan: RunPlan, engine: str) -> str:
    """Return a folder name that changes with anything in the plan."""
    text = json.dumps([FORMAT, engine, asdict(plan)], sort_keys=True, default=str)
    return f"{engine}-{plan.name}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


def describe_machine() -> dict[str, str | float]:
    """Return what a figure depends on."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 1),
    }

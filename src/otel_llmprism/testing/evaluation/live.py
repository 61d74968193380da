# The real path: `up` runs, an engine ships to it and suffers its faults, and the query API is asked for
# findings as a person's page asks. Delay is onset to the finding's `open`; both clocks are of this machine.
import json
import math
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_llmprism.testing.evaluation.fault_kinds import KINDS
from otel_llmprism.testing.evaluation.finding_truth import GRACE_S
from otel_llmprism.testing.evaluation.recording import Recording
from otel_llmprism.testing.faults.fault_ledger import FaultEntry
from otel_llmprism.testing.programs import Programs, find_free_port, wait_until

_POLL_S = 0.25
RecordTo = Callable[[str], Recording]  # an OTLP endpoint in


@dataclass(frozen=True, slots=True)
class LiveOutcome:
    """One fault as it was seen live; infinite delays: it was not."""

    kind: str
    intensity: float
    opened_s: float  # from onset to `open`, as the finding says
    seen_s: float  # from onset until the query API told of it
    names: tuple[str, ...]
    is_right: bool  # the first that opened is an accepted one


@dataclass(frozen=True, slots=True)
class Seen:
    finding: dict[str, Any]
    at_ns: int  # real time


def watch_live(folder: Path, record: RecordTo) -> list[LiveOutcome]:
    """Run `up` and an engine that ships to it; return what was seen of each of its faults."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ports = {name: find_free_port() for name in ("otlp-grpc", "otlp-http", "ui")}
    command = [sys.executable, "-m", "otel_llmprism", "up", "--data", str(folder / "data")]
    for name, port in ports.items():
        command += [f"--{name}", f"127.0.0.1:{port}"]
    with Programs(folder) as programs, ThreadPoolExecutor(1) as pool:
        up = programs.start("up", command, {"PYTHONPATH": str(Path(__file__).parents[3])})
        wait_until(lambda: "ready" in up.read_log().splitlines(), "`up` does not start")
        recording = pool.submit(record, f"http://127.0.0.1:{ports['otlp-grpc']}")
        seen: dict[tuple[str, int], Seen] = {}
        while not recording.done():
            _look(f"http://127.0.0.1:{ports['ui']}/api/llmprism/v1/findings", seen)
            time.sleep(_POLL_S)
        to_real_ns = time.time_ns() - time.monotonic_ns()
        faults = recording.result().list_faults()
    return [judge_live(fault, list(seen.values()), to_real_ns) for fault in faults]


def judge_live(fault: FaultEntry, seen: list[Seen], to_real_ns: int) -> LiveOutcome:
    """Hold what was seen against one fault of the ledger."""
    begin_ns, end_ns = fault.start + to_real_ns, fault.end + to_real_ns + int(GRACE_S * 1e9)
    own = [one for one in seen if begin_ns <= int(one.finding["opened_ns"]) <= end_ns]
    own.sort(key=lambda one: int(one.finding["opened_ns"]))
    opened_s, seen_s = math.inf, math.inf
    if own:
        opened_s = (int(own[0].finding["opened_ns"]) - begin_ns) / 1e9
        seen_s = (own[0].at_ns - begin_ns) / 1e9
    names = tuple(_name(one.finding) for one in own)
    is_right = bool(own) and _is_accepted(fault.kind, own[0].finding)
    return LiveOutcome(fault.kind, fault.intensity, opened_s, seen_s, names, is_right)


def _look(url: str, seen: dict[tuple[str, int], Seen]) -> None:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - our own loopback address
            findings = json.load(response)["findings"]
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return
    for finding in findings:
        seen.setdefault((finding["id"], int(finding["occurrence"])), Seen(finding, time.time_ns()))


def _is_accepted(kind: str, finding: dict[str, Any]) -> bool:
    right, subject = KINDS[kind], finding["subject"]
    is_kind = (finding["kind"], subject["type"]) in right.accepted
    return is_kind and (not right.subjects or subject["id"] in right.subjects)


def _name(finding: dict[str, Any]) -> str:
    return f"{finding['kind']} {finding['subject']['type']}:{finding['subject']['id']}"

# Memory of an instrumented engine and of its exporter over time: the mini engine with two ranks under a
# closed load, its exporter sending to a backend that takes everything. Neither may grow.
#   make soak-engine      (or: python benchmarks/soak_engine.py --minutes 10)
import argparse
import datetime as dt
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from otel_llmprism.testing.otlp_server import OtlpServer
from otel_llmprism.testing.programs import Program, Programs, wait_until

RESULTS = Path(__file__).parent / "results" / "soak_engine.md"
EXPORTER = "otel_llmprism.service.exporter_process"
MIB = 1 << 20
SAMPLE_S = 1.0
GROWTH_MIB = {"engine": 2.0, "rank 1": 2.0, "exporter": 4.0}  # between the second and the last quarter
LOAD = ("--closed", "24", "--prompt", "48", "--output", "24", "--cancel", "0.05", "--ranks", "2")


@dataclass(slots=True)
class Subject:
    """One process of the engine."""

    name: str
    process: psutil.Process
    private_mib: list[float] = field(default_factory=list)
    cpu_share: float = 0.0  # of one core, since it was started

    def sample(self) -> None:
        self.private_mib.append(read_private_bytes(self.process.pid) / MIB)
        times = self.process.cpu_times()
        self.cpu_share = (times.user + times.system) / (time.time() - self.process.create_time())

    @property
    def growth_mib(self) -> float:
        """Median of the last quarter less that of the second: what a leak would show."""
        quarter = max(1, len(self.private_mib) // 4)
        late, early = self.private_mib[-quarter:], self.private_mib[quarter : 2 * quarter]
        return statistics.median(late) - statistics.median(early)

    @property
    def is_flat(self) -> bool:
        return self.growth_mib <= GROWTH_MIB[self.name]


class Sink(OtlpServer):
    """Takes everything and keeps nothing: what it kept would be the only thing that grows."""

    taken_bytes = 0

    def answer(self, request: object) -> object:  # type: ignore[override]
        self.taken_bytes += len(request.payload)  # type: ignore[attr-defined]
        reply = super().answer(request)  # type: ignore[arg-type]
        self._received.clear()
        return reply


def main() -> int:
    parser = argparse.ArgumentParser(description="memory of an instrumented engine and its exporter")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    seconds = options.minutes * 60
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as name,
        Programs(Path(name)) as programs,
        Sink() as sink,
    ):
        engine = start_engine(programs, sink, Path(name), seconds)
        subjects = find_subjects(engine)
        observe(subjects, seconds)
        engine.wait(120)
        text = format_report(subjects, options.minutes, read_summary(engine), sink.taken_bytes)
    print(text)
    if options.write:
        RESULTS.write_text(text + "\n")
    return 0 if all(subject.is_flat for subject in subjects) else 1


def start_engine(programs: Programs, sink: Sink, folder: Path, seconds: float) -> Program:
    environment = {
        "OTEL_LLMPRISM_MODE": "sentinel",
        "OTEL_LLMPRISM_LEDGER_DIR": str(folder / "ledger"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": sink.http_endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }
    command = [
        sys.executable,
        "-m",
        "otel_llmprism.testing.mini_engine",
        "--seconds",
        str(seconds + 5),
        *LOAD,
    ]
    return programs.start("engine", command, environment)


def find_subjects(engine: Program) -> list[Subject]:
    """Return the engine, its second rank and its exporter, once all are there."""
    root = psutil.Process(engine.pid)

    def list_exporters() -> list[psutil.Process]:
        return [child for child in root.children(recursive=True) if EXPORTER in child.cmdline()]

    (exporter,) = wait_until(list_exporters, f"no exporter: {engine.read_log()}")
    run_folder = Path(exporter.cmdline()[-1])
    (ring,) = wait_until(
        lambda: list(run_folder.glob("rank1-*.ring")), f"no second rank: {engine.read_log()}"
    )
    rank = psutil.Process(int(ring.name.split("-")[1]))
    return [Subject("engine", root), Subject("rank 1", rank), Subject("exporter", exporter)]


def observe(subjects: list[Subject], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(SAMPLE_S)
        for subject in subjects:
            subject.sample()
        if sys.stderr.isatty():
            now = ", ".join(f"{subject.name} {subject.private_mib[-1]:.1f} MiB" for subject in subjects)
            print(f"\r{until - time.monotonic():4.0f} s left: {now}  ", end="", file=sys.stderr)


def read_private_bytes(pid: int) -> int:
    """Return a process's anonymous memory: the ring, which is shared and of fixed size, apart."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status tells no RssAnon")


def read_summary(engine: Program) -> dict[str, object]:
    lines = [line for line in engine.read_log().splitlines() if line.startswith("{")]
    return dict(json.loads(lines[-1]))


def format_report(
    subjects: list[Subject], minutes: float, summary: dict[str, object], taken_bytes: int
) -> str:
    seconds, steps = float(str(summary["seconds"])), int(str(summary["steps"]))
    lines = [
        "# Soak: memory of an instrumented engine and its exporter",
        "",
        f"{minutes:g} minutes of the mini engine ({' '.join(LOAD)}),",
        f"{steps:,} steps in {seconds:.0f} s ({steps / seconds:.0f} a second), default policy,",
        f"{taken_bytes / MIB:.1f} MiB of OTLP taken. Private memory (RssAnon, without the ring), every",
        f"{SAMPLE_S:.0f} s; growth is the median of the last quarter of the time less that of the second.",
        "",
        "| process | start MiB | largest MiB | growth MiB | to hold | CPU of one core |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.name} | {one.private_mib[0]:.1f} | {max(one.private_mib):.1f} | {one.growth_mib:+.2f} "
        f"| {GROWTH_MIB[one.name]:g} | {100 * one.cpu_share:.1f} % |"
        for one in subjects
    ]
    today = dt.datetime.now(dt.UTC).date().isoformat()
    lines += [
        "",
        f"Machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}.",
    ]
    return "\n".join([*lines, f"Command: `make soak-engine` ({today}, --minutes {minutes:g})."])


if __name__ == "__main__":
    sys.exit(main())

# Runs a user's program under `opentelemetry-instrument` with the engines' Python and returns what was
# recorded of it: rows of its ledger, read when its exporter has ended. Knows no particular program.
import os
import sysconfig
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.native.ledger import decode_chunks
from otel_llmprism.native.ledger_frames import SegmentOwner
from otel_llmprism.receivers.ledger_files import list_segments, read_segment
from otel_llmprism.receivers.ledger_tables import wrap_columns
from otel_llmprism.testing.engine_overlay import write_overlay
from otel_llmprism.testing.programs import ProgramError, Programs, find_free_port, wait_until

TIMEOUT_S = 240.0
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one program left."""

    owners: list[SegmentOwner]  # one a run
    tables: list[LedgerTables]
    log: str

    def list_rows(self, name: str) -> list[Row]:
        """Return the rows of a ledger table; `step` is the step's id where a row belongs to one."""
        return [row for tables in self.tables for row in _list_rows(tables, name)]


def run_program(
    python: Path,
    folder: Path,
    script: Path,
    *arguments: str,
    ranks: int = 1,
    environment: dict[str, str] | None = None,
    is_instrumented: bool = True,
) -> Recorded:
    """Run a script to its end, under torchrun when it has several ranks; ProgramError when it fails."""
    launch: list[str | Path] = [python.parent / "opentelemetry-instrument"] if is_instrumented else []
    command: list[str | Path] = [*launch, python]
    if ranks > 1:
        meeting = ("--master-addr", "127.0.0.1", "--master-port", str(find_free_port()))
        command += ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *meeting]
    folder.mkdir(parents=True, exist_ok=True)
    with Programs(folder) as programs:
        program = programs.start(
            script.stem, [*command, script, *arguments], build_environment(folder) | (environment or {})
        )
        if program.wait(TIMEOUT_S):
            raise ProgramError(f"{script.name} failed:\n{program.read_log()[-4000:]}")
    runtime = folder / "runtime"
    wait_until(lambda: not any(runtime.glob("*/run.json")), "the exporter does not end")
    return read_recorded(folder / "ledger", program.read_log())


def build_environment(folder: Path) -> dict[str, str]:
    """Return what a program's process needs to find us and to keep all it records in `folder`."""
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, write_overlay(folder / "overlay"))),
        "OTEL_LLMPRISM_RUNTIME_DIR": str(folder / "runtime"),
        "OTEL_LLMPRISM_LEDGER_DIR": str(folder / "ledger"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        **dict.fromkeys(("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"), "none"),
    }
    native = Path(sysconfig.get_path("platlib")) / "otel_llmprism" / "native"
    if (native / "libllmprism.so").exists():
        environment["OTEL_LLMPRISM_NATIVE"] = str(native)
    return environment


def read_recorded(ledger: Path, log: str = "") -> Recorded:
    """Read a ledger's folder; raises ProgramError for what is damaged in it."""

    def refuse(path: Path, at: int, why: str) -> None:
        raise ProgramError(f"{path} at {at}: {why}")

    segments = list_segments(ledger, refuse) if ledger.exists() else []
    bodies = [body for segment in segments for body in read_segment(segment, refuse)]
    decoded = [decode_chunks([body.body]) for body in bodies if body.event_name == "llmprism.ledger"]
    if any(chunk.refused for chunk in decoded):
        raise ProgramError(f"{ledger} holds a chunk that cannot be read")
    runs = {segment.owner.run: segment.owner for segment in segments}
    return Recorded(list(runs.values()), [wrap_columns(chunk.columns) for chunk in decoded], log)


def _list_rows(tables: LedgerTables, name: str) -> list[Row]:
    table = getattr(tables, name)
    columns = {field.name: getattr(table, field.name).tolist() for field in fields(table)}
    if "step_row" in columns:
        steps = tables.steps.step.tolist()
        columns["step"] = [steps[row] for row in columns["step_row"]]
    if "identity_row" in columns:
        for place in fields(tables.identities):
            values = getattr(tables.identities, place.name).tolist()
            columns[place.name] = [values[row] for row in columns["identity_row"]]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

# Begins, joins and ends our part in one run of an engine: identity, ring, recorders, exporter process.
# Whatever goes wrong here, the caller gets recorders that do nothing, and one line says why.
import os
import re
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from otel_llmprism.instrumentation.exporter_start import start_exporter
from otel_llmprism.instrumentation.guard import HookState, NullRing, Ring
from otel_llmprism.instrumentation.keeping import StepKeeper
from otel_llmprism.instrumentation.rank_records import RankPlace, RankRecorder
from otel_llmprism.instrumentation.request_records import RequestRecorder
from otel_llmprism.instrumentation.sampling import build_sampler
from otel_llmprism.instrumentation.step_records import StepRecorder
from otel_llmprism.instrumentation.switches import Switches, read_switches
from otel_llmprism.instrumentation.watched_ring import WatchedRing
from otel_llmprism.native.extension import revoke_lanes
from otel_llmprism.native.ring import DEFAULT_SLOTS, RingError, RingWriter
from otel_llmprism.native.ring_records import HookOff, Mode, Pause, pack_hook_off
from otel_llmprism.native.ring_writer import read_start_ticks
from otel_llmprism.native.run_folder import (
    RUN_FILE,
    RunDescription,
    RuntimeFolderError,
    list_runtime_roots,
    make_run_folder,
    read_run_description,
)

ENGINE_ID_VARIABLE = "OTEL_LLMPRISM_ENGINE_ID"
FOLDER_VARIABLE = "OTEL_LLMPRISM_RUN_FOLDER"  # tells the engine's child processes where to join
RUN_VARIABLE = "OTEL_LLMPRISM_RUN"  # a run that siblings agreed on, in 32 hex digits; else one is minted


class EngineRun:
    """One process's part in a run. `writer` None: switched off, every recorder does nothing."""

    def __init__(
        self,
        description: RunDescription | None,
        switches: Switches,
        writer: RingWriter | None,
        environment: MutableMapping[str, str],
        watched: WatchedRing | None = None,
    ) -> None:
        self.description = description
        self.writer = writer
        self._watched = watched
        ring: Ring = watched or writer or NullRing()
        self._ring = ring
        engine_id, run = (description.engine_id, description.run) if description else ("", "")
        self.keeper = StepKeeper(engine_id, bytes.fromhex(run), switches.steps)
        self.steps = StepRecorder(ring, self.keeper, switches.mode)
        self.requests = RequestRecorder(
            ring, build_sampler(environment), reads_context=switches.reads_context
        )
        self._wanted: frozenset[str] = switches.hooks if writer is not None else frozenset()
        self.mode = switches.mode if writer is not None else Mode.OFF
        self._asleep_since_ns = 0
        self.hooks: list[HookState] = []
        for recorder in (self.steps, self.requests):
            self._add_hook(recorder.hook)

    @property
    def is_on(self) -> bool:
        return self.writer is not None

    @property
    def exporter_pid(self) -> int:
        """The exporter that this process started; 0 when it started none."""
        return self._watched.exporter_pid if self._watched else 0

    def build_rank_recorder(self, place: RankPlace) -> RankRecorder:
        """Return the recorder of this process's rank."""
        recorder = RankRecorder(self._ring, place)
        self._add_hook(recorder.hook)
        return recorder

    def set_mode(self, mode: Mode) -> None:
        """Record from now on as `mode` says; off: a call of a recorder costs one look. From any thread."""
        if self.writer is None or mode is self.mode:
            return
        is_waking = self.mode is Mode.OFF
        self.mode = self.keeper.mode = mode
        revoke_lanes()
        if mode is Mode.OFF:
            self._asleep_since_ns = time.monotonic_ns()
        elif is_waking:
            self.steps.forget_running()
        for hook in self.hooks:
            hook.set_asleep(mode is Mode.OFF)
        if is_waking:  # no cycle may reach back over the time that nobody watched
            self.steps.record_pause(self._asleep_since_ns, time.monotonic_ns(), Pause.UNKNOWN)

    def request_deep_steps(self, steps: int) -> bool:
        """Make the next whole steps that this process schedules deep; False while it is off."""
        if self.mode is Mode.OFF:
            return False
        self.keeper.keep_deep(steps)
        return True

    def note_absent(self, hook: str) -> None:
        """Book that a hook found no place in the framework; `hook` is the place's dotted name."""
        shown = hook.rpartition(".")[0].rpartition(".")[2] + "." + hook.rpartition(".")[2]
        self._ring.put(pack_hook_off(shown[-32:], time.monotonic_ns(), 0, 0, HookOff.ABSENT))

    def _add_hook(self, hook: HookState) -> None:
        hook.is_unwanted = hook.name not in self._wanted
        hook.set_asleep(self.mode is Mode.OFF)
        self.hooks.append(hook)

    def close(self) -> None:
        """Say that this process records no more; the exporter ships what is left and ends."""
        revoke_lanes()
        if self.writer is not None:
            self.writer.close()


def start_engine_run(
    engine_name: str,
    engine_version: str,
    *,
    model: str = "",
    operation: str = "text_completion",
    ranks: int | None = None,
    environment: MutableMapping[str, str] = os.environ,
) -> EngineRun:
    """Mint a run, make its ring, start its exporter. Call it before the engine's children start.

    `ranks`: how many record steps on this node; where it is not told, a step waits a while for ranks
    that nobody has seen yet. The environment is changed so that child processes can join. Never raises.
    """
    switches = read_switches(environment)
    if not switches.is_recording:
        return EngineRun(None, switches, None, environment)
    try:
        description = _describe_run(
            engine_name, engine_version, environment, model=model, operation=operation, ranks=ranks
        )
        folder, writer = _open_somewhere(description, environment)
        joining = {ENGINE_ID_VARIABLE: description.engine_id, FOLDER_VARIABLE: str(folder)}
        watched = _watch_ring(folder, writer, {**environment, **joining})
        run = EngineRun(description, switches, writer, environment, watched)
        environment.update(joining)
    except Exception as error:  # noqa: BLE001 - whatever it is, the engine starts without us
        _warn_off(error)
        return EngineRun(None, switches, None, environment)
    return run


def join_engine_run(role: str, environment: MutableMapping[str, str] = os.environ) -> EngineRun:
    """Join, from another process, the run that the environment names. Never raises."""
    switches = read_switches(environment)
    folder_name = environment.get(FOLDER_VARIABLE, "")
    if not switches.is_recording or not folder_name:
        return EngineRun(None, switches, None, environment)
    try:
        description = read_run_description(Path(folder_name))
        writer = RingWriter.create(build_ring_path(Path(folder_name), role), read_slots(environment))
        return EngineRun(description, switches, writer, environment)
    except Exception as error:  # noqa: BLE001 - whatever it is, the worker starts without us
        _warn_off(error)
        return EngineRun(None, switches, None, environment)


def _warn_off(error: Exception) -> None:
    import logging  # noqa: PLC0415  a third of our import time, for a line that is hardly ever written

    logging.getLogger("otel_llmprism").warning("llmprism is off in this process: %s", error)


def build_ring_path(folder: Path, role: str) -> Path:
    """Return where this process's ring lies; one role may have several in one process."""
    safe_role = re.sub(r"[^a-z0-9]+", "-", role.lower())[:32]
    return folder / f"{safe_role}-{os.getpid()}-{os.urandom(4).hex()}.ring"


def read_slots(environment: Mapping[str, str]) -> int:
    """Return the size of a ring; what RingWriter refuses is said by its error."""
    text = environment.get("OTEL_LLMPRISM_RING_SLOTS", "").strip()
    return int(text) if text.isdecimal() else DEFAULT_SLOTS


def _describe_run(
    engine_name: str,
    engine_version: str,
    environment: Mapping[str, str],
    *,
    model: str,
    operation: str,
    ranks: int | None,
) -> RunDescription:
    engine_id = environment.get(ENGINE_ID_VARIABLE, "").strip()
    return RunDescription(
        engine_id=engine_id or f"{engine_name}-{os.urandom(6).hex()}",
        run=environment.get(RUN_VARIABLE, "") or os.urandom(16).hex(),
        job_id=environment.get("OTEL_LLMPRISM_JOB_ID", "").strip(),
        engine_name=engine_name,
        engine_version=engine_version,
        model=model,
        operation=operation,
        steps=read_switches(environment).steps,
        starter_pid=os.getpid(),
        starter_ticks=read_start_ticks(os.getpid()) or 0,
        ranks=ranks,
    )


def _open_somewhere(
    description: RunDescription, environment: MutableMapping[str, str]
) -> tuple[Path, RingWriter]:
    problems = []
    for root in list_runtime_roots(environment):
        try:
            folder = make_run_folder(root, description)
            return folder, _create_first_ring(folder, read_slots(environment))
        except (OSError, RingError, RuntimeFolderError) as error:
            problems.append(str(error))
    raise RuntimeFolderError(
        f"{'; '.join(problems)}; set OTEL_LLMPRISM_RUNTIME_DIR to a writable memory-backed folder with room"
    )


def _watch_ring(folder: Path, writer: RingWriter, passed: Mapping[str, str]) -> WatchedRing:
    try:
        return WatchedRing(writer, lambda: start_exporter(folder, passed))
    except BaseException:
        # Without an exporter nobody would ever read or remove it.
        writer.close()
        writer.path.unlink(missing_ok=True)
        _remove_folder(folder)
        raise


def _create_first_ring(folder: Path, slots: int) -> RingWriter:
    try:
        return RingWriter.create(build_ring_path(folder, "engine"), slots)
    except RingError:
        _remove_folder(folder)
        raise


def _remove_folder(folder: Path) -> None:
    (folder / RUN_FILE).unlink(missing_ok=True)
    folder.rmdir()

# The one run that this process takes part in, shared by all hooks in it. Asleep (mode off) there is none to
# see, so a wrapper that asks current_run() at each call pays one look; woken, the same wrapper records.
# A forked child begins with none: it joins by the environment like any other child.
import os
import threading
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any

from otel_llmprism.instrumentation.engine_run import (
    FOLDER_VARIABLE,
    EngineRun,
    join_engine_run,
    start_engine_run,
)
from otel_llmprism.instrumentation.switches import is_switched_off
from otel_llmprism.native.ring_codes import Mode

Environment = MutableMapping[str, str]
BeginRun = Callable[[Environment], EngineRun]

_lock = threading.Lock()
_run: EngineRun | None = None
_asleep: EngineRun | None = None  # a run that was switched off while under way
_joined_folder = ""
_seen_folder = ""  # tried once, whether it could be joined or not
_begin: BeginRun | None = None  # how this process would begin a run if it were woken
_role = ""  # as what it would join one
_failing: set[str] = set()
_absent: dict[str, None] = {}  # hooks that found no place, for the run that comes later


def current_run() -> EngineRun | None:
    """Return this process's run, None when it has none or is asleep."""
    return _run


def own_run() -> EngineRun | None:
    """Return this process's run, also while it is asleep."""
    return _run or _asleep


def joined_folder() -> str:
    """Return the folder of this process's run; empty when it has none."""
    return _joined_folder


def list_absent_hooks() -> list[str]:
    """Return the hooks that found no place in this process's frameworks."""
    return list(_absent)


def can_begin() -> bool:
    """Tell whether this process would begin a run if it were woken without one to join."""
    return _begin is not None


def begin_run(
    engine_name: str,
    engine_version: str,
    *,
    model: str = "",
    operation: str = "text_completion",
    ranks: int | None = None,
    environment: Environment = os.environ,
) -> EngineRun | None:
    """Mint a run for an engine that this process is about to start; the one before it is closed."""
    global _begin  # noqa: PLW0603
    begin = partial(_begin_run, engine_name, engine_version, model=model, operation=operation, ranks=ranks)
    with _lock:
        _close_former()
        _begin = begin
        run = _adopt(begin(environment), environment)
    _open_control(environment)
    return run


def join_run(role: str, environment: Environment = os.environ) -> EngineRun | None:
    """Join the run that the environment names, once; None when it names none or this process is asleep."""
    global _role, _seen_folder
    folder = environment.get(FOLDER_VARIABLE, "")
    if not folder or folder in {_joined_folder, _seen_folder}:
        is_known, _role = bool(_role), role
        if not is_known:
            _open_control(environment)
        return _run
    with _lock:
        _close_former()
        _role, _seen_folder = role, folder
        run = _adopt(join_engine_run(role, environment), environment)
    _open_control(environment)
    return run


def wake_run(mode: Mode, folder: str = "", environment: Environment = os.environ) -> EngineRun | None:
    """Record as `mode` says from now on: in the run there is, in that of `folder`, or in one begun now.

    None when this process has none to join and is not the one that begins. The environment stays as it
    is: other threads of a serving engine may be reading it.
    """
    global _run, _asleep
    with _lock:
        run = _run or _asleep
        if run is not None:
            run.set_mode(mode)
            _run, _asleep = (None, run) if mode is Mode.OFF else (run, None)
            return run
        if mode is Mode.OFF:
            return None
        own = {**environment, "OTEL_LLMPRISM_MODE": mode.name.lower()}
        if folder:
            own[FOLDER_VARIABLE] = folder
        if own.get(FOLDER_VARIABLE):
            return _adopt(join_engine_run(_role or "process", own), own)
        return _adopt(_begin(own), own) if _begin is not None else None


def stand_by(engine_name: str, engine_version: str, environment: Environment = os.environ) -> None:
    """Be ready to begin a run when woken: for a process whose engine started before we came."""
    global _begin  # noqa: PLW0603
    if _begin is None:
        _begin = partial(_begin_run, engine_name, engine_version)
    _open_control(environment)


def end_run() -> None:
    """Say that this process records no more, nor begins again when it is woken: its engine has ended."""
    global _begin  # noqa: PLW0603
    with _lock:
        _close_former()
        _begin = None


def tell_failing_hook(name: str, why: str) -> None:
    """Say once that a hook failed; it goes on."""
    if name in _failing or name in _absent:
        return
    _failing.add(name)
    import logging  # noqa: PLC0415  hardly ever needed

    logging.getLogger("otel_llmprism").warning(
        "llmprism: one hook failed and goes on: %s %s; should it stay so, it switches itself off", name, why
    )


def tell_absent_hook(name: str, why: str) -> None:
    """Say once that a hook found no place in the framework; everything else goes on."""
    if name in _absent:
        return
    _absent[name] = None
    if _run is not None:
        _run.note_absent(name)
    import logging  # noqa: PLC0415  hardly ever needed

    logging.getLogger("otel_llmprism").warning(
        "llmprism: one hook is off, since this version differs: %s %s; the others go on. "
        "A newer otel-llmprism may know it",
        name,
        why,
    )


def _begin_run(engine_name: str, engine_version: str, environment: Environment, **about: Any) -> EngineRun:
    return start_engine_run(engine_name, engine_version, **about, environment=environment)


def _adopt(run: EngineRun, environment: Environment) -> EngineRun | None:
    global _run, _joined_folder  # noqa: PLW0603
    _run = run if run.is_on else None
    _joined_folder = environment.get(FOLDER_VARIABLE, "") if run.is_on else ""
    if _run is not None:
        for name in _absent:
            _run.note_absent(name)
    return _run


def _close_former() -> None:
    global _run, _asleep, _joined_folder
    former, _run, _asleep, _joined_folder = _run or _asleep, None, None, ""
    if former is not None:
        former.close()


def _open_control(environment: Environment) -> None:
    if is_switched_off(environment):
        return
    # Here and not above: a helper process, which never comes here, pays for none of it.
    from otel_llmprism.instrumentation.control_server import open_control  # noqa: PLC0415

    open_control(environment)


def _forget_after_fork() -> None:
    global _run, _asleep, _joined_folder, _seen_folder, _begin, _role, _lock  # noqa: PLW0603
    _run, _asleep, _joined_folder, _seen_folder, _begin, _role = None, None, "", "", None, ""
    _lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_forget_after_fork)

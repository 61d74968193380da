# `attach`: bring instrumentation into a running Python process, by the soundest way it allows, and wake it.
import argparse
import sys
from collections.abc import Callable

from otel_llmprism.cli.attach_gdb import AttachError, run_in_process
from otel_llmprism.cli.attach_script import AttachFolder
from otel_llmprism.cli.attach_target import REMOTE_EXEC, Target, look_at_target, refuse
from otel_llmprism.cli.control import describe_answer
from otel_llmprism.cli.engine_control import NotInstrumentedError, find_engine, wake_process

HELP = "bring instrumentation into a running Python process"
EXAMPLE = "otel-llmprism attach 4711"

RemoteExec = Callable[[int, str], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=int, metavar="PID", help="one process; an engine's others one by one")
    parser.add_argument(
        "--allow-ptrace",
        action="store_true",
        help="below Python 3.14: let gdb stop the process for a moment and start our thread in it",
    )
    parser.add_argument("--asleep", action="store_true", help="do not begin to record; `control` wakes it")
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="S", help="for it to answer (default 30)"
    )


def run(args: argparse.Namespace) -> int:
    """Attach to one process; 1 when it could not be done, with why and what else to do."""
    target = look_at_target(args.pid)
    try:
        if is_instrumented(target.pid):
            return _fail(f"process {target.pid} is instrumented already: use `otel-llmprism control`")
        if why := refuse(target, allows_ptrace=args.allow_ptrace):
            return _fail(why)
        attach_to(target, args.timeout)
    except AttachError as error:
        return _fail(str(error))
    if args.asleep:
        print(f"{target.pid}  attached, asleep")
        return 0
    return _wake(target.pid)


def is_instrumented(pid: int) -> bool:
    """Tell whether the process answers on a control socket of its own."""
    try:
        return any(process.pid == pid for process in find_engine(pid))
    except NotInstrumentedError:
        return False


def attach_to(target: Target, timeout_s: float, remote_exec: RemoteExec | None = None) -> None:
    """Have our lines run in the process and wait for its word; AttachError when it does not come."""
    folder = AttachFolder(target.uid)
    is_over = False
    try:
        if target.version is not None and target.version >= REMOTE_EXEC:
            _ask_interpreter(target.pid, str(folder.starter_file), remote_exec or find_remote_exec())
        else:
            run_in_process(target.pid, folder.starter, folder.path, timeout_s)
        said = folder.await_report(timeout_s)
        is_over = bool(said)
    except BaseException:
        is_over = True
        raise
    finally:
        if is_over:
            folder.remove()
    if not said:
        raise AttachError(
            f"process {target.pid} has not answered within {timeout_s:g} s: its main thread is in a long "
            f"call or asleep. It may still answer later: ask with `otel-llmprism control {target.pid} "
            f"status`, and remove {folder.path} then"
        )
    if said != "ok":
        mend = "; install otel-llmprism where its Python finds it" if "ModuleNotFoundError" in said else ""
        raise AttachError(f"process {target.pid} cannot be instrumented: {said}{mend}")


def find_remote_exec() -> RemoteExec:
    """Return this Python's sys.remote_exec; AttachError where it is built without."""
    found: RemoteExec | None = getattr(sys, "remote_exec", None)
    if found is None:
        raise AttachError("this Python was built without remote debugging: use another build of it")
    return found


def _ask_interpreter(pid: int, script: str, remote_exec: RemoteExec) -> None:
    try:
        remote_exec(pid, script)
    except PermissionError as error:
        raise AttachError(
            "the system does not permit it: run this as root, in a container with CAP_SYS_PTRACE, or lower "
            "kernel.yama.ptrace_scope"
        ) from error
    except (OSError, RuntimeError) as error:
        raise AttachError(f"its interpreter refuses: {error}") from error


def _wake(pid: int) -> int:
    # Only this one: another of the engine may be asleep by its user's wish.
    answer = wake_process(pid, find_engine(pid))
    print("\n".join(describe_answer(pid, answer)))
    return 0 if answer.get("ok") else 1


def _fail(why: str) -> int:
    sys.stderr.write(f"otel-llmprism attach: error: {why}\n")
    return 1

# The way into a Python below 3.14: gdb waits until the interpreter itself calls a function that we queued, a
# point where running Python code is sound, and starts our thread there. Never ends gdb the hard way: its
# breakpoint would stay in the process and kill it.
import platform
import shutil
import signal
import subprocess
from pathlib import Path

from otel_llmprism.config.errors import ConfigError

_FIRST_ARGUMENT = {"x86_64": "$rdi", "amd64": "$rdi", "aarch64": "$x0", "arm64": "$x0"}
_GRACE_S = 10.0
_MARK = "llmprism-attached"
# Changes a vector register and changes it back; what gdb believes to be as it was, it does not write. A gdb
# that does not know this processor's state is refused here by the kernel, where nothing has changed, and not
# in the middle of a call, which would end the process.
_PROBE = """\
set $llmprism = $xmm15.v4_int32[0]
set $xmm15.v4_int32[0] = $llmprism ^ 1
set $xmm15.v4_int32[0] = $llmprism
"""
_PROBES = {"x86_64": _PROBE, "amd64": _PROBE}
_QUICK = ("auto-solib-add", "debuginfod enabled", "auto-load python-scripts")


class AttachError(Exception):
    """It did not work; the text says why and that the process goes on."""


def build_gdb_script(starter: str, machine: str) -> str:
    """Return gdb's commands; ConfigError on a processor whose calls we do not know."""
    register = _FIRST_ARGUMENT.get(machine.lower())
    if register is None:
        raise ConfigError(f"--allow-ptrace knows x86-64 and ARM64, not {machine}")
    code = starter.replace("\\", "\\\\").replace('"', '\\"')
    # The interpreter calls PyCallable_Check itself for what is queued, with the null that no other caller
    # passes: any thread may check a callable at any time, in the middle of anything. Asked again after
    # `continue`, which also ends when gdb is interrupted, at a point where running Python would be fatal.
    return f"""\
set pagination off
set confirm off
set unwindonsignal on
sharedlibrary libpython
sharedlibrary libc\\.so
handle all nostop noprint pass
handle SIGTRAP stop print nopass
handle SIGINT stop print nopass
{_PROBES.get(machine.lower(), "")}\
call ((int (*)(void *, void *)) Py_AddPendingCall)((void *) PyCallable_Check, (void *) 0)
tbreak *PyCallable_Check if {register} == 0
continue
if (long) $pc == (long) PyCallable_Check && {register} == 0
  if ((int (*)(const char *)) PyRun_SimpleString)("{code}") == 0
    echo {_MARK}\\n
  end
end
detach
quit
"""


def run_in_process(pid: int, starter: str, folder: Path, timeout_s: float) -> None:
    """Let the process run `starter` once; AttachError or ConfigError with the mend."""
    gdb = shutil.which("gdb")
    if gdb is None:
        raise ConfigError("--allow-ptrace needs gdb: install it (apt install gdb), or restart the engine")
    script = folder / "attach.gdb"
    script.write_text(build_gdb_script(starter, platform.machine()), encoding="utf-8")
    # The symbols of torch's libraries take gdb many seconds, in which the process stands still.
    quick = [word for setting in _QUICK for word in ("-iex", f"set {setting} off")]
    command = [gdb, "-nx", "-batch", *quick, "-p", str(pid), "-x", str(script)]
    # A session of its own: a Ctrl-C here must not reach gdb's process in the middle.
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        errors="replace",
    ) as process:
        try:
            said, _ = process.communicate(timeout=timeout_s)
        except BaseException as error:
            said = _let_go(process)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise AttachError(
                f"process {pid} reached no safe point within {timeout_s:g} s: its main thread is in a long "
                f"call, or asleep; it goes on as before"
            ) from error
    if _MARK not in said:
        raise AttachError(_explain(said))


def _let_go(process: "subprocess.Popen[str]") -> str:
    """Interrupt gdb: it takes its breakpoint out, leaves the process running and ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
        try:
            return process.communicate(timeout=_GRACE_S)[0]
        except subprocess.TimeoutExpired:
            continue
    raise AttachError(f"gdb (process {process.pid}) does not let go: end it with `kill -INT {process.pid}`")


def _explain(said: str) -> str:
    if "Operation not permitted" in said or "ptrace" in said.lower():
        return (
            "the system does not permit to trace it: run this as root, in a container with CAP_SYS_PTRACE, "
            "or lower kernel.yama.ptrace_scope; the process goes on as before"
        )
    if "extended state" in said:
        return (
            "this gdb does not know all registers of this processor: install gdb 14 or newer, or restart the "
            "engine under opentelemetry-instrument; the process goes on as before"
        )
    if "No symbol" in said:
        return "its Python shows no symbols, so no safe point can be found; the process goes on as before"
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "gdb said nothing")
    return f"gdb could not do it: {last[:200]}; the process goes on as before"

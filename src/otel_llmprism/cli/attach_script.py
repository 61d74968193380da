# The few lines that an attached process runs, in a folder that only its user may enter, and what they report
# back. Knows no way of getting them run.
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import otel_llmprism

POLL_S = 0.05
_SCRIPT = """\
import sys
try:
    import otel_llmprism
except ImportError:
    sys.path.append({root!r})
from otel_llmprism.instrumentation.attached import install_late
install_late({report!r})
"""
# One expression without a name of its own: it runs in the process's __main__. The thread does the work, so
# that the main thread is held for microseconds.
_STARTER = (
    "__import__('threading').Thread(target=exec, args=(open({script!r}).read(), {{}}), "
    "name='llmprism-attach', daemon=True).start()"
)


class AttachFolder:
    """Made for one attachment; `starter` is what the process has to run."""

    def __init__(self, uid: int) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="llmprism-attach-"))
        self._report = self.path / "report"
        script = self.path / "script.py"
        root = str(Path(otel_llmprism.__file__).parents[1])
        script.write_text(_SCRIPT.format(root=root, report=str(self._report)), encoding="utf-8")
        self.starter = _STARTER.format(script=str(script))
        self.starter_file = self.path / "start.py"
        self.starter_file.write_text(self.starter + "\n", encoding="utf-8")
        for path in (script, self.starter_file, self.path):
            path.chmod(0o700 if path is self.path else 0o600)
            if uid != os.geteuid():
                os.chown(path, uid, -1)

    def await_report(self, timeout_s: float, sleep: Callable[[float], None] = time.sleep) -> str:
        """Return what the process says; empty when it has not said anything in time."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            with contextlib.suppress(FileNotFoundError):
                return self._report.read_text(encoding="utf-8")[:500]
            sleep(POLL_S)
        return ""

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

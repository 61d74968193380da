# The exporter process as it is started: whoever starts it, it can be told to end.
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from otel_llmprism.instrumentation import exporter_start

_REPORT = """\
import os, signal, sys
from pathlib import Path
Path(sys.argv[1], "session").write_text(str(os.getsid(0)))
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
Path(sys.argv[1], "blocked").write_text(",".join(str(int(number)) for number in blocked))
"""


def test_an_exporter_that_the_control_thread_started_takes_signals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "fake_exporter.py"
    module.write_text(_REPORT, encoding="utf-8")
    monkeypatch.setattr(exporter_start, "MODULE", "fake_exporter")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    pids: list[int] = []

    def start() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # as the control thread does
        pids.append(exporter_start.start_exporter(tmp_path, environment))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert os.waitpid(pids[0], 0)[1] == 0
    assert (tmp_path / "blocked").read_text(encoding="utf-8") == ""
    session = int((tmp_path / "session").read_text(encoding="utf-8"))
    assert session == pids[0], "what ends the engine's group does not end it"

# One exporter a run folder, and no run folder for ever: the lock, and the removal of folders that a
# killed engine and a killed exporter left behind.
import fcntl
import os
import shutil
from pathlib import Path

from otel_llmprism.native.ring_writer import read_start_ticks
from otel_llmprism.native.run_folder import RUN_FILE, read_run_description

_LOCK_FILE = "exporter.lock"
# A folder whose engine is gone may still get its exporter, which is just starting.
STALE_AFTER_S = 600.0


def take_lock(folder: Path) -> int | None:
    """Return the locked descriptor, or None when another process serves the folder."""
    descriptor = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def sweep_stale_folders(root: Path, now_s: float) -> None:
    """Remove old run folders below `root` whose engine is gone and that nobody serves."""
    for run_file in root.glob(f"*/{RUN_FILE}"):
        try:
            if now_s - run_file.stat().st_mtime > STALE_AFTER_S:
                _remove_if_dead(run_file.parent)
        except (OSError, ValueError):
            continue  # foreign, newer, or being removed by its own exporter


def _remove_if_dead(folder: Path) -> None:
    run = read_run_description(folder)
    if read_start_ticks(run.starter_pid) == run.starter_ticks:
        return
    lock = take_lock(folder)
    if lock is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)

# Two trainers: one that starts a process of its own for each job and never waits for it, and a synchronous
# one for replays. One job at a time; what overruns is killed and counted.
import os
import subprocess
import sys
import threading

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.baseline import BASELINE_REFUSED
from otel_llmprism.service.sentinel.engine_model import TrainJob, TrainResult
from otel_llmprism.service.sentinel.parts import Parts
from otel_llmprism.service.sentinel.trainer_wire import FITTED, MAX_ANSWER_BYTES, encode_job

PROGRAM = "otel_llmprism.service.sentinel.trainer"
# Numeric libraries would take every core.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class SyncTrainer:
    """Fits when asked and has the result at the next poll: for replays, where the same must come out."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._results: list[TrainResult] = []

    def submit(self, job: TrainJob) -> bool:
        try:
            fitted = self._parts.fit(job.work, job.cycle_ns, job.groups, job.seed)
            self._results.append(TrainResult(job.key, self._parts.dump(fitted)))
        except ValueError as error:
            self._results.append(TrainResult(job.key, b"", str(error)))
        return True

    def poll(self) -> list[TrainResult]:
        results, self._results = self._results, []
        return results


class ProcessTrainer:
    """Called from one thread; a thread of its own waits for the process."""

    def __init__(self, max_memory: int, timeout_s: float, counters: Counters) -> None:
        self._max_memory = max_memory
        self._timeout_s = timeout_s
        self._counters = counters
        self._lock = threading.Lock()
        self._results: list[TrainResult] = []
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def submit(self, job: TrainJob) -> bool:
        if self._is_closed or (self._thread is not None and self._thread.is_alive()):
            return False
        self._thread = threading.Thread(target=self._run, args=(job,), name="llmprism-fit", daemon=True)
        self._thread.start()
        return True

    def poll(self) -> list[TrainResult]:
        with self._lock:
            results, self._results = self._results, []
        return results

    def close(self) -> None:
        """End the process if one runs; what it would have said is not waited for."""
        self._is_closed = True
        with self._lock:
            process = self._process
        if process is not None:
            process.kill()
        if self._thread is not None:
            self._thread.join(2.0)

    def _run(self, job: TrainJob) -> None:
        result = TrainResult(job.key, b"", "the process failed")
        try:
            answer = self._fit(encode_job(job))
            if answer[:1] == FITTED:
                result = TrainResult(job.key, answer[1:])
            else:
                result = TrainResult(job.key, b"", answer[1:].decode("utf-8", "replace") or "no answer")
        except subprocess.TimeoutExpired:
            self._counters.add(BASELINE_REFUSED, why="overran")
            result = TrainResult(job.key, b"", f"it took more than {self._timeout_s:g} s")
        except OSError as error:
            result = TrainResult(job.key, b"", str(error))
        with self._lock:
            self._results.append(result)

    def _fit(self, raw: bytes) -> bytes:
        words = [sys.executable, "-m", PROGRAM, str(self._max_memory), str(max(1, round(self._timeout_s)))]
        with subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD},
            start_new_session=True,
        ) as process:
            with self._lock:
                self._process = process
            try:
                answer, _ = process.communicate(raw, timeout=self._timeout_s)
            finally:
                process.kill()
                with self._lock:
                    self._process = None
        return answer if len(answer) <= MAX_ANSWER_BYTES else b""

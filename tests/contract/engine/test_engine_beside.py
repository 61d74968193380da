# Exporter process and doctor beside a running engine: where the exporter runs, what is seen from outside.
import json
import os
import subprocess
import sys
from typing import Any

import psutil
import pytest

from otel_llmprism.testing.programs import wait_until

LONG = ("--requests", "100000", "--closed", "4", "--output", "20", "--ranks", "2")


def find_exporter(case: Any) -> psutil.Process:
    def find() -> list[psutil.Process]:
        children = psutil.Process(case.process.pid).children()
        return [child for child in children if "otel_llmprism.service.exporter_process" in child.cmdline()]

    (exporter,) = wait_until(find, "there is no exporter", 30)
    return exporter


def test_exporter_leaves_the_core_that_a_rank_is_bound_to(start_engine: Any) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core: nowhere to go")
    case = start_engine(*LONG)
    exporter = find_exporter(case)
    rings = wait_until(
        lambda: list(case.find_run_folder().glob("rank1-*.ring")), "there is no second rank", 30
    )
    os.sched_setaffinity(int(rings[0].name.split("-")[1]), {cores[-1]})

    def list_cores() -> set[tuple[int, ...]]:
        return {tuple(psutil.Process(thread.id).cpu_affinity()) for thread in exporter.threads()}

    wait_until(lambda: list_cores() == {tuple(cores[:-1])}, "the exporter stays where the rank is", 60)
    assert exporter.nice() >= min(psutil.Process().nice() + 10, 19)
    assert case.process.poll() is None


def test_doctor_reads_a_running_engine_as_it_tells_of_itself(start_engine: Any) -> None:
    case = start_engine(*LONG, NCCL_PROFILER_PLUGIN="inspector")
    case.server.wait_for(2)
    command = [sys.executable, "-m", "otel_llmprism", "doctor", "--json", "--pid", str(case.process.pid)]
    runtime = {"OTEL_LLMPRISM_RUNTIME_DIR": str(case.folder / "runtime")}
    done = subprocess.run(
        [*command, "--endpoint", case.server.http_endpoint],
        env={**os.environ, **runtime},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    checks = {check["what"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks[f"process {case.process.pid}"]["says"].startswith("mode sentinel")
    assert "yours stays" in checks[f"{case.process.pid} NCCL profiler plugin"]["says"]
    assert checks["OTLP endpoint"]["level"] == "ok"
    assert case.process.poll() is None

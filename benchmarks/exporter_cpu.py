# What the exporter process costs at the load of the design: 8 ranks, batch 256, 100 steps/s, every request
# sampled. Eight real processes write through the real recorders at that pace; a real exporter process drains
# their rings and sends to a backend that takes everything.
import argparse
import datetime as dt
import multiprocessing
import os
import platform
import signal
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.synchronize import Event
from pathlib import Path

import psutil
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_llmprism.instrumentation.engine_run import EngineRun, join_engine_run, start_engine_run
from otel_llmprism.instrumentation.rank_records import RankPlace
from otel_llmprism.instrumentation.step_records import EngineState
from otel_llmprism.model.signals import Signal
from otel_llmprism.native.ring_records import Finish, RequestEvent
from otel_llmprism.testing.otlp_server import OtlpServer

RESULTS = Path(__file__).parent / "results" / "exporter_cpu.md"
RANKS, BATCH, STEPS_PER_S, OUTPUT = 8, 256, 100, 200
STEP_NS = 1_000_000_000 // STEPS_PER_S
WARM_UP_S = 5.0
MIB = 1 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU and memory of the exporter process")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="exporter-") as name, OtlpServer() as sink:
        environment = {
            **os.environ,
            "OTEL_LLMPRISM_MODE": "sentinel",
            "OTEL_LLMPRISM_RUNTIME_DIR": f"/dev/shm/llmprism-bench-{os.getpid()}",  # noqa: S108
            "OTEL_LLMPRISM_LEDGER_DIR": f"{name}/ledger",
            "OTEL_EXPORTER_OTLP_ENDPOINT": sink.http_endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
        text = measure(environment, options.seconds, sink)
        Path(environment["OTEL_LLMPRISM_RUNTIME_DIR"]).rmdir()
    print(text)
    if options.write:
        RESULTS.write_text(text + "\n")
    return 0


def measure(environment: dict[str, str], seconds: float, sink: OtlpServer) -> str:
    run = start_engine_run("mini", "0", ranks=RANKS, environment=environment)
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    arguments = [(rank, environment, stop) for rank in range(1, RANKS)]
    workers = [context.Process(target=record_rank, args=one, daemon=True) for one in arguments]
    for worker in workers:
        worker.start()
    exporter = psutil.Process(run.exporter_pid)
    load = Load(run)
    load.run_for(WARM_UP_S)
    before, began_s, steps = exporter.cpu_times(), time.monotonic(), load.steps
    sent = sum_bytes(sink)
    load.run_for(seconds)
    sent = sum_bytes(sink) - sent
    after, took_s = exporter.cpu_times(), time.monotonic() - began_s
    cpu = (after.user + after.system - before.user - before.system) / took_s
    rss, threads = exporter.memory_info().rss, exporter.num_threads()
    stop.set()
    for worker in workers:
        worker.join()
    run.close()
    os.waitpid(run.exporter_pid, 0)
    writer = run.writer
    dropped = writer.dropped if writer is not None else 0
    rows = {
        "pace": f"{(load.steps - steps) / took_s:.1f} steps/s",
        "CPU of the exporter process, of one core": f"{100 * cpu:.1f} %",
        "its resident memory": f"{rss / MIB:.0f} MiB",
        "its threads": str(threads),
        "records dropped": str(dropped),
    }
    rows |= {f"OTLP: {what}": f"{size / took_s / 1e3:.1f} kB/s" for what, size in sorted(sent.items())}
    return format_report(rows, took_s)


def sum_bytes(sink: OtlpServer) -> Counter[str]:
    """Return what came so far by signal, host samples and ledger apart."""
    sizes: Counter[str] = Counter()
    for one in sink.received():
        if one.signal is not Signal.LOGS:
            sizes[one.signal.value] += len(one.payload)
            continue
        for resource in ExportLogsServiceRequest.FromString(one.payload).resource_logs:
            for record in (record for scope in resource.scope_logs for record in scope.log_records):
                sizes[record.event_name] += record.ByteSize()
    return sizes


def record_rank(rank: int, environment: dict[str, str], stop: Event) -> None:
    """Be one rank: a record a step, at the pace of the clock that all processes share."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run = join_engine_run(f"rank{rank}", environment)
    recorder = run.build_rank_recorder(RankPlace(rank=rank, tp=rank))
    step, began_ns = 0, time.monotonic_ns()
    while not stop.wait(max(0.0, (began_ns + step * STEP_NS - time.monotonic_ns()) / 1e9)):
        now_ns = time.monotonic_ns()
        recorder.record_rank(step, now_ns, now_ns + 8_000_000, wait_ns=1000)
        step += 1
    run.close()


class Load:
    """A full batch at a fixed pace: whenever a request ends, the next one joins."""

    def __init__(self, run: EngineRun) -> None:
        self.steps = 0
        self._run = run
        self._rank = run.build_rank_recorder(RankPlace(rank=0))
        self._left: dict[str, int] = {}
        self._count = 0

    def run_for(self, seconds: float) -> None:
        due_ns = time.monotonic_ns()
        until_ns = due_ns + round(seconds * 1e9)
        while due_ns < until_ns:
            self._run_step()
            due_ns += STEP_NS
            time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))

    def _run_step(self) -> None:
        requests, start_ns = self._run.requests, time.monotonic_ns()
        joined = [self._arrive(start_ns) for _ in range(BATCH - len(self._left))]
        tokens = dict.fromkeys(self._left, 1)
        state = EngineState(waiting=3, running=BATCH, kv_tokens=BATCH * 600, kv_usage=0.7)
        ticket = self._run.steps.record_scheduled(
            tokens, set(joined), state, start_ns, time.monotonic_ns(), joined=joined
        )
        for name in joined:
            requests.record_event(name, RequestEvent.SCHEDULED, time.monotonic_ns(), ticket.step_id)
        self._rank.record_rank(ticket.step_id, start_ns, time.monotonic_ns(), wait_ns=1000)
        self._run.steps.record_output(ticket, time.monotonic_ns(), execute_ns=8_000_000)
        for name in joined:
            requests.record_event(name, RequestEvent.FIRST_TOKEN, time.monotonic_ns(), ticket.step_id)
        self._end_finished()
        self.steps += 1

    def _arrive(self, now_ns: int) -> str:
        self._count += 1
        name = f"chatcmpl-{self._count:032x}"
        self._run.requests.record_arrival(name, now_ns)
        self._left[name] = OUTPUT // 2 + self._count * 37 % OUTPUT
        return name

    def _end_finished(self) -> None:
        for name in self._left:
            self._left[name] -= 1
        finished = [name for name, left in self._left.items() if not left]
        self._run.steps.record_left(finished)
        for name in finished:
            del self._left[name]
            now_ns = time.monotonic_ns()
            self._run.requests.record_end(
                name, now_ns, Finish.LENGTH, prompt_tokens=512, output_tokens=OUTPUT, steps=OUTPUT
            )


def format_report(rows: dict[str, str], took_s: float) -> str:
    today = dt.datetime.now(dt.UTC).date().isoformat()
    table = "\n".join(f"| {what} | {measured} |" for what, measured in rows.items())
    return f"""# What the exporter process costs

{RANKS} processes with a rank each, batch {BATCH}, answers of {OUTPUT} tokens, every request sampled, default
policy, OTLP over HTTP to a sink on loopback; {took_s:.0f} s after a warm-up of {WARM_UP_S:.0f} s. With
samples of the host and of all {RANKS} processes once a second.

| what | measured |
|---|---|
{table}

Machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}.
Command: `make bench-exporter` ({today})."""


if __name__ == "__main__":
    sys.exit(main())

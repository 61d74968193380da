# Memory with a backend that is down: two processors (durability memory and process) under a steady load
# that nobody takes from them; their memory must stay within what is configured, and flat once it is full.
#   make soak      (or: python benchmarks/soak.py --minutes 10 --write benchmarks/results/soak.md)
import argparse
import datetime as dt
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import psutil
from relay_payload import build_requests
from relay_systems import read_machine, read_versions

from otel_llmprism.testing.processor_program import ProcessorSetup
from otel_llmprism.testing.programs import Programs, find_free_port

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
MIB = 1 << 20
QUEUE_MIB, LOG_MIB, IN_FLIGHT_MIB = 32, 128, 16
REQUESTS_PER_S = 20
SAMPLE_S = 1.0
# Interpreter, libraries, gRPC's buffers: 75 MiB before the first request, and room for fragmentation.
BASE_MIB = 120
GROWTH_MIB = 8.0  # between the second and the last quarter of the time


@dataclass(slots=True)
class Subject:
    """One processor under load."""

    durability: str
    setup: ProcessorSetup
    process: psutil.Process
    accepted: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    rss_mib: list[float] = field(default_factory=list)

    @property
    def growth_mib(self) -> float:
        """Median of the last quarter less that of the second: what a leak would show."""
        quarter = max(1, len(self.rss_mib) // 4)
        return statistics.median(self.rss_mib[-quarter:]) - statistics.median(
            self.rss_mib[quarter : 2 * quarter]
        )

    @property
    def limit_mib(self) -> float:
        return BASE_MIB + QUEUE_MIB + IN_FLIGHT_MIB

    @property
    def is_flat(self) -> bool:
        return self.growth_mib <= GROWTH_MIB and max(self.rss_mib) <= self.limit_mib


def main() -> int:
    parser = argparse.ArgumentParser(description="memory of the processor while its backend is down")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--write", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, Programs(Path(folder)) as programs:
        subjects = [start_subject(programs, Path(folder), name) for name in ("memory", "process")]
        observe(subjects, options.minutes * 60)
    text = format_report(subjects, options.minutes)
    print(text)
    if options.write:
        options.write.write_text(text + "\n")
    return 0 if all(subject.is_flat for subject in subjects) else 1


def start_subject(programs: Programs, folder: Path, durability: str) -> Subject:
    own = folder / durability
    own.mkdir()
    backend = f"grpc://127.0.0.1:{find_free_port()}"  # nobody listens there
    service = {
        "durability": durability,
        "log": {"directory": str(own / "log"), "max_bytes": f"{LOG_MIB}MiB"},
        "queue": {"max_bytes": f"{QUEUE_MIB}MiB"},
        "telemetry": {"log_level": "error"},
    }
    exporter = {"in_flight": {"max_bytes": f"{IN_FLIGHT_MIB}MiB"}}
    setup = ProcessorSetup(own, backend, service=service, exporter=exporter)
    program = setup.start(programs).await_port(setup.grpc_port)
    return Subject(durability, setup, psutil.Process(program.pid))


def observe(subjects: list[Subject], seconds: float) -> None:
    """Load all of them and sample their memory until the time is over."""
    is_over = threading.Event()
    payloads = build_requests(16)
    clients = [threading.Thread(target=send_until, args=(subject, payloads, is_over)) for subject in subjects]
    for client in clients:
        client.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(SAMPLE_S)
        for subject in subjects:
            tree = [subject.process, *subject.process.children(recursive=True)]
            subject.rss_mib.append(sum(member.memory_info().rss for member in tree) / MIB)
        if sys.stderr.isatty():
            now = ", ".join(f"{s.durability} {s.rss_mib[-1]:.0f} MiB" for s in subjects)
            print(f"\r{until - time.monotonic():4.0f} s left: {now}  ", end="", file=sys.stderr)
    is_over.set()
    for client in clients:
        client.join()


def send_until(subject: Subject, payloads: list[bytes], is_over: threading.Event) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{subject.setup.grpc_port}") as channel:
        export = channel.unary_unary(METHOD)
        number = 0
        while not is_over.wait(1 / REQUESTS_PER_S):
            number += 1
            try:
                export(payloads[number % len(payloads)], timeout=30)
                subject.accepted += 1
            except grpc.RpcError as error:
                code = error.code().name
                subject.refused[code] = subject.refused.get(code, 0) + 1


def format_report(subjects: list[Subject], minutes: float) -> str:
    lines = [
        "# Soak: memory while the backend is down",
        "",
        f"{minutes:g} minutes, {REQUESTS_PER_S} requests a second of 512 spans (190 kB) to each of two",
        f"processors whose backend does not listen. Queue {QUEUE_MIB} MiB, in flight {IN_FLIGHT_MIB} MiB,",
        f"log {LOG_MIB} MiB; memory (RSS of the process tree) sampled every {SAMPLE_S:.0f} s. To hold: at",
        f"most {BASE_MIB} MiB more than queue and flight, and at most {GROWTH_MIB:.0f} MiB between the",
        "medians of the second and the last quarter of the time.",
        "",
        "| durability | start MiB | largest MiB | bound MiB | growth MiB | accepted | refused |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in subjects:
        refused = ", ".join(f"{count} {code}" for code, count in sorted(one.refused.items())) or "0"
        lines.append(
            f"| {one.durability} | {one.rss_mib[0]:.0f} | {max(one.rss_mib):.0f} | {one.limit_mib:.0f} "
            f"| {one.growth_mib:+.1f} | {one.accepted} | {refused} |"
        )
    today = dt.datetime.now(dt.UTC).date().isoformat()
    lines += ["", f"Machine: {read_machine()}.", f"Versions: {read_versions()}."]
    lines += [f"Command: `make soak` ({today}, --minutes {minutes:g})."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

# What the write-ahead log costs: requests of 150 kB (512 spans of 10 attributes) offered, taken, settled.
# CPU is user + system of this process; memory is the base row of each pair; SQLite is the next best.
# `make bench-log` or `python benchmarks/log.py [--folder DIR] [--requests N] [--write]`
import argparse
import os
import platform
import resource
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.flow import Flow
from otel_llmprism.pipeline.ingress import Feed, build_ingress
from otel_llmprism.pipeline.ingress_config import Durability, IngressConfig, LogConfig
from otel_llmprism.pipeline.ports import Outcome

SIZE = 150_000
ROUNDS = 5
RESULTS = Path(__file__).parent / "results" / "log.md"
Load = Callable[[Path, int], None]


class SettlingSink:
    def __init__(self, count: int) -> None:
        self._left = count
        self.done = threading.Event()

    def start(self) -> None:
        """Need nothing."""

    def send(self, batch: Batch, /) -> None:
        batch.receipt.settle()
        self._left -= 1
        if not self._left:
            self.done.set()

    def stop(self, deadline_ns: int) -> None:
        """Hold nothing."""


def build(folder: Path, durability: str, queue_bytes: int = 64 << 20) -> Feed:
    config = IngressConfig(Durability(durability), queue_bytes, log=LogConfig(folder / "log", 4 << 30))
    feed = build_ingress(config, Counters())
    feed.start()
    feed.take(0)  # nothing is left of an earlier run: from now on the queue is used
    return feed


def offer(feed: Feed, payload: bytes) -> None:
    if feed.offer(Signal.TRACES, payload).outcome is not Outcome.ACCEPTED:
        raise RuntimeError("refused: give the benchmark a folder with more space")


def offer_many(feed: Feed, payload: bytes, count: int) -> None:
    for _ in range(count):
        offer(feed, payload)


def settle_next(feed: Feed) -> None:
    batch = feed.take(1.0)
    if batch is None:
        raise RuntimeError("nothing came out")
    batch.receipt.settle()


def in_turn(durability: str) -> Load:
    def load(folder: Path, count: int) -> None:
        feed, payload = build(folder, durability), os.urandom(SIZE)
        for _ in range(count):
            offer(feed, payload)
            settle_next(feed)
        feed.release()

    return load


def by_threads(durability: str, threads: int) -> Load:
    """Receivers in `threads` threads, the real pipeline thread, a sink that settles at once."""

    def load(folder: Path, count: int) -> None:
        feed, payload = build(folder, durability), os.urandom(SIZE)
        share = count // threads
        sink = SettlingSink(share * threads)
        flow = Flow(feed, [], sink, Counters(), time.monotonic_ns)
        flow.start()
        offers = [threading.Thread(target=offer_many, args=(feed, payload, share)) for _ in range(threads)]
        for thread in offers:
            thread.start()
        sink.done.wait()
        for thread in offers:
            thread.join()
        feed.close()
        flow.drain(time.monotonic_ns() + 10_000_000_000)
        feed.release()

    return load


def overflow(folder: Path, count: int) -> None:
    """Everything is written while nothing is taken (a backend that is down), then read back."""
    feed, payload = build(folder, "process", queue_bytes=1), os.urandom(SIZE)
    for _ in range(count):
        offer(feed, payload)
    for _ in range(count):
        settle_next(feed)
    feed.release()


def sqlite(synchronous: str) -> Load:
    def load(folder: Path, count: int) -> None:
        payload = os.urandom(SIZE)
        store = sqlite3.connect(folder / "log.sqlite", isolation_level=None)
        store.execute("PRAGMA journal_mode=WAL")
        store.execute(f"PRAGMA synchronous={synchronous}")
        store.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, signal INTEGER, payload BLOB)")
        for number in range(count):
            store.execute("INSERT INTO log VALUES (?, 1, ?)", (number, payload))
            store.execute("DELETE FROM log WHERE id = ?", (number,))
        store.close()

    return load


LOADS: dict[str, Load] = {
    "memory, in turn": in_turn("memory"),
    "process, in turn": in_turn("process"),
    "host, in turn": in_turn("host"),
    "process, all on disk and read back": overflow,
    "memory, 16 receivers and the pipeline thread": by_threads("memory", 16),
    "process, 16 receivers and the pipeline thread": by_threads("process", 16),
    "host, 16 receivers and the pipeline thread": by_threads("host", 16),
    "SQLite WAL, synchronous=OFF (as process), in turn": sqlite("OFF"),
    "SQLite WAL, synchronous=FULL (as host), in turn": sqlite("FULL"),
}


def measure(load: Load, folder: Path, count: int) -> tuple[float, float]:
    """Give CPU microseconds a request and requests a second."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        load(Path(scratch), count)
        after, wall_s = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - began
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return cpu_s / count * 1e6, count / wall_s


def render(folder: Path, count: int) -> str:
    rows = []
    for name, load in LOADS.items():
        rounds = [measure(load, folder, count) for _ in range(ROUNDS)]
        cpu_us = statistics.median(cpu for cpu, _ in rounds)
        rate = statistics.median(rate for _, rate in rounds)
        spread = f"{min(cpu for cpu, _ in rounds):.0f} to {max(cpu for cpu, _ in rounds):.0f}"
        rows.append(f"| {name} | {cpu_us:.0f} | {spread} | {rate:.0f} |")
        print(rows[-1], flush=True)
    table = "\n".join(rows)
    return f"""# What the write-ahead log costs

`make bench-log` ({count} requests of {SIZE} bytes a round, median of {ROUNDS} rounds), Python
{platform.python_version()}, {os.cpu_count()} cores of {read_cpu()}, {platform.system()} {platform.release()}.
CPU is user + system of the whole process, the load generator included; a request is offered, taken and
settled. "in turn" is one thread; rows with receivers wake threads across cores.

| load | CPU us a request | from, to | requests a second |
|---|---|---|---|
{table}
"""


def read_cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "an unnamed processor"


def main() -> None:
    parser = argparse.ArgumentParser(description="cost of the write-ahead log")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--requests", type=int, default=1600)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name} as well")
    arguments = parser.parse_args()
    text = render(arguments.folder, arguments.requests)
    if arguments.write:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

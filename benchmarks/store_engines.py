# SQLite (the store as it is) against DuckDB (the same tables, bulk inserts) at what the embedded store
# does all day. One process an engine; `make bench-store` writes benchmarks/results/store_engines.md.
import argparse
import importlib.metadata
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Protocol

import psutil
from store_payload import BATCH, SPANS_A_TRACE, build_batches, list_known

from otel_llmprism.exporters.store.span_rows import SpanRows

RESULTS = Path(__file__).parent / "results" / "store_engines.md"
ENGINES = ("sqlite", "duckdb")
QUESTIONS = (
    "newest of a service",
    "operation and duration",
    "indexed attribute",
    "other attribute",
    "trace by id",
)


class Engine(Protocol):
    def insert(self, payload: bytes, rows: SpanRows) -> int: ...
    def ask(self, question: str, known: dict[str, Any]) -> int: ...
    def delete_oldest(self, share: float) -> None: ...
    def count(self) -> int: ...
    def close(self) -> None: ...


def open_engine(name: str, folder: Path) -> Engine:
    if name == "sqlite":
        from store_engine_sqlite import SqliteEngine  # noqa: PLC0415 - one engine a process

        return SqliteEngine(folder)
    from store_engine_duckdb import DuckdbEngine  # noqa: PLC0415 - as above

    return DuckdbEngine(folder)


def measure(name: str, folder: Path, batches: int) -> dict[str, Any]:
    """Fill, ask, delete; return the figures of one engine."""
    from otel_llmprism.exporters.store.scan_columns import SpanColumns  # noqa: PLC0415 - after the fork of roles
    from otel_llmprism.exporters.store.searchable import RESOURCE_KEYS, SPAN_KEYS  # noqa: PLC0415 - as above

    columns = SpanColumns(SPAN_KEYS, RESOURCE_KEYS)
    payloads = build_batches(batches)
    scanned = [(payload, columns.read_rows(payload)) for payload in payloads]
    before = psutil.Process().memory_info().rss
    engine = open_engine(name, folder)
    cpu, wall = time.process_time(), time.perf_counter()
    for payload, rows in scanned:
        engine.insert(payload, rows)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    spans = batches * BATCH
    start = time.perf_counter()
    again = sum(engine.insert(payload, rows) for payload, rows in scanned[: batches // 10])
    assert again == 0, f"{name}: {again} spans were stored twice"
    repeat = time.perf_counter() - start
    asked = ask_all(engine, list_known(batches))
    rss = psutil.Process().memory_info().rss - before
    engine.close()
    size = measure_folder(folder)
    engine = open_engine(name, folder)
    start = time.perf_counter()
    engine.delete_oldest(0.5)
    deleted = time.perf_counter() - start
    left = engine.count()
    engine.close()
    return {
        "insert, spans/s": round(spans / wall),
        "insert, CPU us a span": round(cpu / spans * 1e6, 1),
        "a batch that is there already, spans/s": round(batches // 10 * BATCH / repeat),
        **{f"{question}, ms": value for question, value in asked.items()},
        "on disk, bytes a span": round(size / spans),
        "memory added, MiB": round(rss / 2**20),
        "delete the older half, spans/s": round((spans - left) / deleted),
        "file after that, share": round(measure_folder(folder) / size, 2),
    }


def ask_all(engine: Engine, known: dict[str, Any]) -> dict[str, float]:
    answers = {}
    for question in QUESTIONS:
        times = []
        for _ in range(9):
            start = time.perf_counter()
            found = engine.ask(question, known)
            times.append((time.perf_counter() - start) * 1e3)
        assert found, f"{question} found nothing"
        answers[question] = round(statistics.median(times), 2)
    return answers


def measure_crash(name: str, folder: Path) -> str:
    """Kill a filling process with -9; say how many acknowledged spans are missing after reopening."""
    words = [sys.executable, __file__, "--engine", name, "--folder", str(folder), "--fill"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = 0
        for line in process.stdout:
            acknowledged = int(line)
            if acknowledged >= 20 * BATCH:
                process.send_signal(signal.SIGKILL)
                break
        acknowledged = max([acknowledged, *(int(line) for line in process.stdout if line.endswith("\n"))])
    start = time.perf_counter()
    engine = open_engine(name, folder)
    count = engine.count()
    engine.close()
    opened_ms = (time.perf_counter() - start) * 1e3
    return f"{max(0, acknowledged - count)} of {acknowledged} (open again: {opened_ms:.0f} ms)"


def fill_until_killed(name: str, folder: Path) -> None:
    from otel_llmprism.exporters.store.scan_columns import SpanColumns  # noqa: PLC0415 - after the fork of roles
    from otel_llmprism.exporters.store.searchable import RESOURCE_KEYS, SPAN_KEYS  # noqa: PLC0415 - as above

    columns = SpanColumns(SPAN_KEYS, RESOURCE_KEYS)
    engine = open_engine(name, folder)
    total = 0
    for payload in build_batches(200):
        total += engine.insert(payload, columns.read_rows(payload))
        print(total, flush=True)


def measure_folder(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def measure_install(name: str) -> str:
    if name == "sqlite":
        return "0 (in Python)"
    files = importlib.metadata.files("duckdb") or []
    size = sum(Path(str(file.locate())).stat().st_size for file in files if Path(str(file.locate())).exists())
    return f"{size / 2**20:.0f} MiB (duckdb {importlib.metadata.version('duckdb')})"


def run_apart(name: str, batches: int, base: Path) -> dict[str, Any]:
    folder = base / name
    folder.mkdir()
    words = [sys.executable, __file__, "--engine", name, "--folder", str(folder), "--batches", str(batches)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    crash_folder = base / f"{name}-crash"
    crash_folder.mkdir()
    figures["acknowledged spans missing after kill -9"] = measure_crash(name, crash_folder)
    figures["installed size"] = measure_install(name)
    return figures


def write_results(figures: dict[str, dict[str, Any]], batches: int) -> str:
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    lines = [
        "# Embedded store: SQLite against DuckDB",
        "",
        f"Command: `make bench-store`. Machine: {machine}.",
        f"{batches} batches of {BATCH} spans with 10 attributes, {SPANS_A_TRACE} spans a trace; questions",
        "are medians of 9 and give whole traces, 20 at most. Both get the same scanned columns.",
        "",
        "| | SQLite | DuckDB |",
        "|---|---:|---:|",
    ]
    lines += [f"| {row} | {figures['sqlite'][row]} | {figures['duckdb'][row]} |" for row in figures["sqlite"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--fill", action="store_true")
    parser.add_argument("--batches", type=int, default=400)
    args = parser.parse_args()
    if args.fill:
        fill_until_killed(args.engine, args.folder)
    elif args.engine:
        print(json.dumps(measure(args.engine, args.folder, args.batches)))
    else:
        with tempfile.TemporaryDirectory() as base:
            figures = {name: run_apart(name, args.batches, Path(base)) for name in ENGINES}
        text = write_results(figures, args.batches)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text)
        print(text)


if __name__ == "__main__":
    main()

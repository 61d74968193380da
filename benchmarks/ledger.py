# The ledger's figures: bytes on the wire at 8 ranks, batch 256, 100 steps/s; steps decoded a second; what
# exporter and hooks pay. Writes benchmarks/results/ledger.md. One core; CPU time, best of several runs.
#   .venv/bin/python benchmarks/ledger.py
import argparse
import gzip
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ledger_load import BATCH, RANKS, STEPS_PER_S, Load

from otel_llmprism import __version__
from otel_llmprism.exporters.ledger_chunks import encode_chunk
from otel_llmprism.exporters.otlp_logs import LedgerRecord, encode_ledger_records
from otel_llmprism.model.member_sums import sum_request_tokens
from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.native import ledger, ledger_twin
from otel_llmprism.native import ring_records as records
from otel_llmprism.native.ledger_layout import ChunkAnchor
from otel_llmprism.native.library import load_library
from otel_llmprism.native.ring import RingReader, RingWriter, RunningSet
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import LedgerReader
from otel_llmprism.receivers.ledger_tables import wrap_columns
from otel_llmprism.receivers.ring import RingAssembler, RingAssemblerConfig

RESULTS = Path(__file__).parent / "results" / "ledger.md"
SHIPPED_STEPS = STEPS_PER_S // 2  # every 500 ms
WARM_UP_CHUNKS = 6  # until the batch is full and the answers' ends are spread
RESOURCE = {
    "service.name": "chat-serving", "service.namespace": "prod", "service.instance.id": "chat-serving-7f9c-0",
    "host.name": "gpu-node-017", "process.pid": 4711, "telemetry.sdk.name": "otel-llmprism",
    "llmprism.engine.id": "chat-serving/gpu-node-017/4711", "llmprism.engine.run": "0123456789abcdef" * 2,
    "llmprism.engine.name": "vllm", "llmprism.engine.version": "0.11.0",
    "llmprism.job.id": "prod/chat-serving",
}  # fmt: skip


def measure(work: Callable[[], object], repeats: int) -> float:
    """Return the least CPU seconds of several runs: what else runs here only ever adds."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def make_slots(steps: int, per_drain: int) -> tuple[Load, list[bytes]]:
    load, drains, waiting = Load(), [], []
    for step, own in enumerate(load.run(steps), 1):
        waiting += own
        if step % per_drain == 0:
            drains.append(b"".join(waiting))
            waiting = []
    return load, drains


def assemble(drains: list[bytes], now_ns: int) -> Iterator[LedgerTables]:
    assembler = RingAssembler(Counters(), RingAssemblerConfig(expected_ranks=RANKS))
    for drain in drains:
        assembler.consume(drain)
        while (tables := assembler.take(now_ns)) is not None:
            yield tables


def encode(tables: LedgerTables) -> bytes:
    steps = tables.steps.step
    first, last = (int(steps[0]), int(steps[-1])) if len(steps) else (0, 0)
    return encode_chunk(tables, ChunkAnchor(first, last, 10**15, 17 * 10**17))


def to_request(seq: int, chunk: bytes) -> bytes:
    record = LedgerRecord(
        "llmprism.ledger", chunk, 0, "gpu-node-017", seq, 17 * 10**17, 50 * seq, 50 * seq + 49
    )
    return encode_ledger_records(RESOURCE, [record], __version__)


def check_tokens(load: Load, every: list[LedgerTables]) -> int:
    """Return how many requests' steps and tokens differ between the load's own book and the ledger."""
    sums: dict[int, tuple[int, int, int]] = {}
    for tables in every:
        own = sum_request_tokens(tables.steps.lane, tables.members, tables.running)
        columns = (own.handle, own.steps, own.prefill_tokens, own.decode_tokens)
        for handle, *counts in zip(*(column.tolist() for column in columns), strict=True):
            before = sums.get(handle, (0, 0, 0))
            sums[handle] = (before[0] + counts[0], before[1] + counts[1], before[2] + counts[2])
    return sum(
        sums.get(records.derive_request_handle(name), (0, 0, 0)) != booked
        for name, booked in load.booked.items()
    )


def measure_ring(repeats: int) -> dict[str, float]:
    """Return ns a record for the writer in the user's process, packing included."""
    count = 2000
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:  # noqa: S108
        writer = RingWriter.create(Path(folder) / "bench.ring")
        reader = RingReader.open(writer.path)
        works: dict[str, Callable[[int], object]] = {
            "step scheduled": lambda step: writer.put(
                records.pack_step_scheduled(
                    step, 10**15, 10**15, 2, 0, 0.01, 256, 0, 256, 10**6, 3, 256, 0, 0.5, 3, 1
                )
            ),
            "step output": lambda step: writer.put(records.pack_step_output(step, 10**15, 1, 2, 3)),
            "rank": lambda step: writer.put(records.pack_step_rank(step, 3, 10**15, 10**15, 10**7, 10**5)),
        }
        costs = {}
        for name, work in works.items():
            seconds = measure(lambda work=work: [work(step) for step in range(count)], repeats)  # type: ignore[misc]
            costs[name] = seconds / count * 1e9
            reader.drain(1 << 20)
        running: RunningSet[str] = RunningSet(records.derive_request_handle)
        tokens = {f"chatcmpl-{number:032x}": 1 for number in range(BATCH)}
        running.diff(tokens, ())
        costs["members of a step of 256"] = (
            measure(lambda: [running.diff(tokens, ()) for _ in range(200)], repeats) / 200 * 1e9
        )
        writer.close()
        reader.close()
    return costs


def measure_all(repeats: int) -> Iterator[tuple[str, str, str]]:
    load, drains = make_slots(2000, SHIPPED_STEPS)
    later = load.now_ns + 10**11
    every = list(assemble(drains, later))
    chunks = [encode(tables) for tables in every]
    wrong = check_tokens(load, every)
    yield "requests whose tokens the ledger does not add up exactly", f"{wrong} of {len(load.booked)}", "0"
    steady = chunks[WARM_UP_CHUNKS:]
    seconds = len(steady) * SHIPPED_STEPS / STEPS_PER_S
    requests = [to_request(seq, chunk) for seq, chunk in enumerate(steady)]
    wire, packed = (
        sum(map(len, requests)) / seconds,
        sum(len(gzip.compress(r, 6)) for r in requests) / seconds,
    )
    yield "on the wire, OTLP framing included", f"{wire / 1e3:.1f} kB/s", "60 kB/s"
    yield "the same with gzip", f"{packed / 1e3:.1f} kB/s", ""
    yield "ring", f"{sum(map(len, drains[WARM_UP_CHUNKS:])) / seconds / 1e3:.0f} kB/s", ""
    count = len(drains) * SHIPPED_STEPS
    joining = measure(lambda: list(assemble(drains, later)), repeats) / count
    encoding = measure(lambda: [to_request(0, encode(tables)) for tables in every], repeats) / count
    cost = (
        f"{(joining + encoding) * 1e6:.0f} us a step ({joining * 1e6:.0f} join, {encoding * 1e6:.0f} encode)"
    )
    yield "exporter: ring slots to OTLP bytes", cost, ""
    many = steady * 3
    yield from measure_decoding("chunks of 50 steps, about 100 at a time", many, requests, repeats)
    _, large_drains = make_slots(6000, 600)
    large = [encode(tables) for tables in assemble(large_drains, later * 2)]
    rate = 6000 / measure(lambda: decode(large), repeats)
    yield f"chunks of {6000 // len(large)} steps", f"{rate / 1e6:.2f} million steps/s", "1 million"
    for name, cost_ns in measure_ring(repeats).items():
        yield f"hook: {name}", f"{cost_ns / 1e3:.2f} us", "1 to 2 us" if "members" not in name else ""


def measure_decoding(
    name: str, chunks: list[bytes], requests: list[bytes], repeats: int
) -> Iterator[tuple[str, str, str]]:
    steps = len(chunks) * SHIPPED_STEPS
    rate = steps / measure(lambda: decode(chunks), repeats)
    yield f"decode to columns: {name}", f"{rate / 1e6:.2f} million steps/s", "1 million"
    one_by_one = len(chunks) * SHIPPED_STEPS / measure(lambda: [decode([chunk]) for chunk in chunks], repeats)
    yield "the same, a call for each chunk", f"{one_by_one / 1e6:.2f} million steps/s", ""
    own = requests[:30]
    read = (
        len(own)
        * SHIPPED_STEPS
        / measure(lambda: [list(LedgerReader(Counters()).read_request(request)) for request in own], repeats)
    )
    yield "the same, from OTLP requests of one chunk (scan, dedup)", f"{read / 1e6:.2f} million steps/s", ""
    few = chunks[:20]
    twin = len(few) * SHIPPED_STEPS / measure(lambda: ledger_twin.decode_chunks(few), 2)
    yield "the same, by the twin in pure Python", f"{twin / 1e3:.0f} thousand steps/s", "stated"


def decode(chunks: list[bytes]) -> int:
    return len(wrap_columns(ledger.decode_chunks(chunks).columns).steps)


def describe_machine() -> str:
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    library = "libllmprism" if load_library() else "no libllmprism: the twin everywhere"
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, {library}"


def main() -> int:
    parser = argparse.ArgumentParser(description="the ledger's figures")
    parser.add_argument("--repeats", type=int, default=7)
    rows = [*measure_all(parser.parse_args().repeats)]
    lines = [
        "# Ledger",
        "",
        f"{RANKS} ranks, batch {BATCH}, {STEPS_PER_S} steps/s, answers of about 200 tokens, chunked prefill,",
        "noise in every time. CPU time of one core, best of several runs, with other work on the machine.",
        "",
        f"Machine: {describe_machine()}. Command: `make bench-ledger`.",
        "",
        "| what | measured | reach |",
        "|---|---|---|",
        *(f"| {what} | {measured} | {reach} |" for what, measured, reach in rows),
        "",
    ]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

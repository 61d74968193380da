# kill -9 of the processor at random moments under load, again and again on the same log folder: what was
# acknowledged is at the backend in the end, and little of it twice.
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from otel_llmprism.testing.numbered_load import NumberedLoad, count_numbers
from otel_llmprism.testing.otlp_server import Accept, OtlpServer, Received, Refuse, Reset
from otel_llmprism.testing.processor_program import ProcessorSetup
from otel_llmprism.testing.programs import Programs, wait_until

SEED = 20
RUNS = 20
SPANS = 10  # a request
IN_FLIGHT = 10  # requests that the exporter may have on its way when it dies
MIB = 1 << 20


class UnsteadyBackend(OtlpServer):
    """Takes most requests, refuses some for now and breaks some calls off, by a seeded choice."""

    def __init__(self) -> None:
        super().__init__()
        self._choice = random.Random(SEED)
        self.is_down = False

    def answer(self, request: Received) -> Accept | Refuse | Reset:
        luck = self._choice.random()
        if luck < 0.05:
            return Reset()
        if luck < 0.2 or self.is_down:
            return Refuse(grpc.StatusCode.UNAVAILABLE)
        return super().answer(request)


@pytest.fixture
def backend() -> Iterator[UnsteadyBackend]:
    with UnsteadyBackend() as server:
        yield server


def build_setup(folder: Path, backend: OtlpServer, durability: str) -> ProcessorSetup:
    log = {"directory": str(folder / "write-ahead-log"), "max_bytes": 8 * MIB}  # many small segments
    return ProcessorSetup(
        folder,
        backend.grpc_endpoint,
        service={"durability": durability, "log": log},
        exporter={"in_flight": {"requests": IN_FLIGHT}},
    )


def kill_again_and_again(
    setup: ProcessorSetup, programs: Programs, load: NumberedLoad, backend: UnsteadyBackend, runs: int
) -> None:
    """Start and kill the processor; every fourth time before or just when it is ready.

    Half of the time, and at last, the backend is down: the next start finds a log that is not empty.
    """
    moment = random.Random(SEED)
    for run in range(runs):
        backend.is_down = run % 4 >= 2
        with load:
            processor = setup.start(programs)
            if run % 4 != 3:
                processor.await_port(setup.grpc_port)
            time.sleep(moment.uniform(0.05, 0.8))  # what decides is not when but that it is any moment
            processor.kill()
    backend.is_down = False


def await_rest(setup: ProcessorSetup, programs: Programs, load: NumberedLoad, backend: OtlpServer) -> float:
    """Start it a last time, let it end in order, and return how many requests it found in its log."""
    processor = setup.start(programs).await_port(setup.grpc_port)

    def is_all_there() -> bool:
        return load.acknowledged <= count_numbers(backend.received()).keys()

    wait_until(is_all_there, "acknowledged spans are missing at the backend", 30)
    replayed = setup.sum_counter("llmprism_log_replayed_total")
    assert processor.stop() == 0
    assert "stopped: nothing left" in processor.read_log()
    return replayed


def check_duplicates(arrived: Counter[int], kills: int) -> None:
    """What was on its way at a kill may arrive twice, and nothing else."""
    extra = sum(count - 1 for count in arrived.values())
    print(f"{len(arrived)} spans arrived, {extra} of them again, over {kills} kills")  # noqa: T201 - the figure
    assert extra <= kills * IN_FLIGHT * SPANS


def test_twenty_kills_under_load_lose_nothing_acknowledged(
    programs: Programs, backend: UnsteadyBackend, tmp_path: Path
) -> None:
    setup = build_setup(tmp_path, backend, "process")
    load = NumberedLoad(f"grpc://127.0.0.1:{setup.grpc_port}", spans=SPANS)
    kill_again_and_again(setup, programs, load, backend, RUNS)
    replayed = await_rest(setup, programs, load, backend)
    assert len(load.acknowledged) >= RUNS * 100, "the kills hit no load"
    assert load.refusals, "no request was under way when it was killed"
    assert replayed, "the last start found nothing in its log: the kills proved little"
    check_duplicates(count_numbers(backend.received()), RUNS)


def test_kills_with_every_request_on_the_disk_first_lose_nothing(
    programs: Programs, backend: UnsteadyBackend, tmp_path: Path
) -> None:
    setup = build_setup(tmp_path, backend, "host")
    load = NumberedLoad(f"grpc://127.0.0.1:{setup.grpc_port}", spans=SPANS)
    kill_again_and_again(setup, programs, load, backend, 3)
    await_rest(setup, programs, load, backend)
    assert len(load.acknowledged) >= 100
    check_duplicates(count_numbers(backend.received()), 3)

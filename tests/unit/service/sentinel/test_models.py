# Models of many engines: when they are fitted, who borrows, what is said of drift, and where fits happen.
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.baseline import BASELINE_REFUSED
from otel_llmprism.service.sentinel import training
from otel_llmprism.service.sentinel.engine_model import FIRST_NS, FIRST_STEPS, EngineModel, TrainJob
from otel_llmprism.service.sentinel.facts import EngineFacts, read_facts
from otel_llmprism.service.sentinel.model_book import ModelBook, StoredModel
from otel_llmprism.service.sentinel.parts import Parts
from otel_llmprism.service.sentinel.trainer import answer_job
from otel_llmprism.service.sentinel.trainer_wire import FAILED, WireError, decode_job, encode_job
from otel_llmprism.service.sentinel.training import ProcessTrainer, SyncTrainer
from otel_llmprism.service.sentinel.work import build_work, select_charted
from otel_llmprism.testing.made_ledger import START_NS, MadeLedger

PEERS = EngineFacts(peers="same")


def make_job(seconds: float = 10.0) -> TrainJob:
    steps = MadeLedger(seconds=seconds).make_steps()
    rows = select_charted(steps)
    groups = ((steps.output_ready_ns - np.uint64(START_NS)) // np.uint64(10**9)).astype(np.int64)
    return TrainJob("engine", build_work(steps, rows), steps.cycle_ns, groups, 7)


def teach(model: EngineModel, seconds: float, ledger: MadeLedger | None = None) -> None:
    steps = (ledger or MadeLedger(seconds=seconds)).make_steps()
    rows = select_charted(steps)
    model.learn(build_work(steps, rows), steps.cycle_ns[rows], steps.output_ready_ns[rows])


def build_book(parts: Parts) -> ModelBook:
    return ModelBook(parts, SyncTrainer(parts), Counters(), 10, 0)


def test_the_first_fit_waits_for_steps_and_for_time(parts: Parts) -> None:
    model = build_book(parts).find("engine", EngineFacts())
    teach(model, FIRST_NS / 1e9 - 2)
    assert model.learned > FIRST_STEPS
    assert model.find_job() is None
    teach(model, 3, MadeLedger(seconds=3, start_s=FIRST_NS / 1e9 - 2))
    assert model.find_job() is not None
    assert model.find_job() is None  # one at a time


def test_one_step_an_hour_never_asks_for_a_fit(parts: Parts) -> None:
    model = build_book(parts).find("engine", EngineFacts())
    teach(model, 0, MadeLedger(seconds=360_000, base_ns=3.3e12))
    assert model.find_job() is None


def test_a_failed_fit_is_tried_again_later(parts: Parts) -> None:
    def refuse(*_: Any) -> Any:
        raise ValueError("too few")

    book = build_book(replace(parts, fit=refuse))
    model = book.find("engine", EngineFacts())
    teach(model, 40)
    book.train(set())
    assert list(book.collect(set())) == []
    assert model.find_job() is None
    teach(model, 80, MadeLedger(seconds=80, start_s=40))
    assert model.find_job() is not None


def test_a_new_engine_begins_with_its_stored_model(parts: Parts) -> None:
    book = build_book(parts)
    book.adopt(StoredModel("engine", "", 500, b"law-1"))
    current = book.find("engine", EngineFacts()).current
    assert current is not None
    assert not current.is_borrowed


def test_a_damaged_stored_model_is_refused_and_counted(parts: Parts) -> None:
    counters = Counters()
    book = ModelBook(parts, SyncTrainer(parts), counters, 10, 0)
    book.adopt(StoredModel("engine", "", 500, b"junk"))
    assert book.find("engine", EngineFacts()).current is None
    assert counters.value(BASELINE_REFUSED, why="damaged") == 1


def test_a_peers_model_is_borrowed_and_given_back_when_it_does_not_fit(parts: Parts) -> None:
    book = build_book(parts)
    book.adopt(StoredModel("first", "same", 500, b"law-1"))
    book.find("first", PEERS)
    second = book.find("second", PEERS)
    assert second.current is not None
    assert second.current.is_borrowed
    assert second.note_residuals(np.full(400, 0.5))
    assert second.current is None


def test_nobody_is_a_peer_of_an_engine_that_says_nothing(parts: Parts) -> None:
    book = build_book(parts)
    book.adopt(StoredModel("first", "", 500, b"law-1"))
    book.find("first", EngineFacts())
    assert book.find("second", EngineFacts()).current is None


def test_replicas_of_one_engine_are_peers_without_a_service_name() -> None:
    assert read_facts({}, "base/dp0") == read_facts({}, "base/dp1")
    assert read_facts({}, "base").peers == ""


def test_drift_from_the_frozen_reference_is_told(parts: Parts) -> None:
    scales = iter((1.0, 1.0, 1.2))
    drifting = replace(parts, fit=lambda *_job: parts.load(f"law-{next(scales)}".encode()))
    book = build_book(drifting)
    model = book.find("engine", EngineFacts())
    told = []
    for round_ in range(3):
        teach(model, 0, MadeLedger(seconds=300, start_s=300.0 * round_))
        book.train(set())
        told.append(next(book.collect(set())))
    assert [[round(drift.ratio, 2) for drift in one.drifts] for one in told] == [[], [], [1.2]]
    assert model.note == "expects 1.20 times what the frozen reference expects"
    assert [one.is_changed for one in told] == [True, False, True]


def test_an_engine_with_an_open_finding_keeps_its_model(parts: Parts) -> None:
    book = build_book(parts)
    model = book.find("engine", EngineFacts())
    teach(model, 40)
    book.train({"engine"})
    assert list(book.collect(set())) == []
    book.train(set())
    assert list(book.collect({"engine"})) == []
    assert model.current is None
    assert len(list(book.collect(set()))) == 1


def test_jobs_come_through_the_pipe_as_they_are() -> None:
    job = make_job()
    work, cycle_ns, groups, seed = decode_job(encode_job(job))
    assert work.names == job.work.names
    assert np.array_equal(work.values, job.work.values, equal_nan=True)
    assert np.array_equal(work.kind, job.work.kind)
    assert np.array_equal(cycle_ns, job.cycle_ns)
    assert np.array_equal(groups, job.groups)
    assert seed == 7


@pytest.mark.parametrize("seed", range(50))
def test_damaged_jobs_are_refused(seed: int) -> None:
    random, raw = np.random.default_rng(seed), bytearray(encode_job(make_job(0.1)))
    at = int(random.integers(0, 150))
    raw[at] ^= int(random.integers(1, 255))
    cut = bytes(raw[: int(random.integers(0, len(raw)))])
    with pytest.raises(WireError):
        decode_job(cut)


def test_a_job_that_teaches_nothing_is_answered_in_one_line() -> None:
    answer = answer_job(encode_job(make_job(0.1)))
    assert answer[:1] == FAILED
    assert b"\n" not in answer


def wait_for(trainer: ProcessTrainer, timeout_s: float = 120.0) -> Any:
    give_up_at = time.monotonic() + timeout_s
    while not (results := trainer.poll()):
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
    return results[0]


def test_a_fit_that_overruns_is_killed_and_counted() -> None:
    counters = Counters()
    trainer = ProcessTrainer(2 << 30, 0.05, counters)
    assert trainer.submit(make_job())
    result = wait_for(trainer)
    assert result.raw == b""
    assert counters.value(BASELINE_REFUSED, why="overran") == 1


def test_a_killed_process_leaves_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = ProcessTrainer(2 << 30, 60.0, Counters())
    monkeypatch.setattr(training, "PROGRAM", "this_module_does_not_exist")
    assert trainer.submit(make_job())
    assert not trainer.submit(make_job())  # busy, and told so at once
    assert wait_for(trainer).error == "no answer"


def test_closing_does_not_wait_for_a_fit() -> None:
    trainer = ProcessTrainer(2 << 30, 300.0, Counters())
    trainer.submit(make_job())
    while trainer._process is None:
        time.sleep(0.01)
    os.kill(trainer._process.pid, signal.SIGSTOP)  # it will never end by itself
    trainer.close()
    assert not trainer.submit(make_job())


def test_facts_tell_names_for_people(build_bench: Callable[[], Any]) -> None:
    facts = read_facts({"llmprism.engine.name": "vllm", "llmprism.job.id": "j", "service.name": "s"}, "e")
    assert (facts.name, facts.job, facts.peers != "") == ("vllm", "j", True)

# vLLM as a library, without a server: each engine of a program is a run of its own, in one process or in two.
import json
from collections import Counter
from pathlib import Path

import pytest

from otel_llmprism.native.ring_records import Finish, RequestEvent
from otel_llmprism.testing.engine_model import write_model
from otel_llmprism.testing.engine_program import Recorded, run_program

PROGRAM = Path(__file__).parent / "programs" / "vllm_library.py"


@pytest.fixture(scope="module", params=["0", "1"], ids=["in one process", "in a process of its own"])
def recorded(
    engine_python: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Recorded:
    folder = tmp_path_factory.mktemp("library")
    model, told = write_model(folder / "model"), folder / "told.json"
    environment = {"VLLM_ENABLE_V1_MULTIPROCESSING": request.param, "VLLM_CPU_KVCACHE_SPACE": "1"}
    environment["VLLM_NO_USAGE_STATS"] = "1"
    result = run_program(engine_python, folder, PROGRAM, str(model), str(told), environment=environment)
    answers = json.loads(told.read_text())
    assert [len(answer) for answer in answers] == [3, 1], "the program itself went wrong"
    return result


def test_each_engine_is_a_run(recorded: Recorded) -> None:
    assert len(recorded.owners) == 2
    assert len({owner.engine_id for owner in recorded.owners}) == len(recorded.owners)


def test_every_request_arrives_starts_and_ends_once(recorded: Recorded) -> None:
    arrivals = [row["handle"] for row in recorded.list_rows("arrivals")]
    ends = recorded.list_rows("ends")
    assert len(arrivals) == 4
    assert sorted(arrivals) == sorted(row["handle"] for row in ends)
    assert {row["finish"] for row in ends} == {Finish.LENGTH}
    assert sorted(row["prompt_tokens"] for row in ends) == [1, 2, 2, 3]
    assert {row["output_tokens"] for row in ends} == {6}
    events = Counter((row["handle"], row["event"]) for row in recorded.list_rows("events"))
    kinds = (RequestEvent.QUEUED, RequestEvent.SCHEDULED, RequestEvent.FIRST_TOKEN, RequestEvent.RESPONDED)
    assert events == Counter((handle, kind) for handle in arrivals for kind in kinds)


def test_every_step_has_its_rank_and_its_result(recorded: Recorded) -> None:
    steps = recorded.list_rows("steps")
    assert sum(row["prefill_tokens"] for row in steps) == 8
    assert sum(row["decode_tokens"] for row in steps) == 4 * 5
    assert len(recorded.list_rows("ranks")) == len(steps)
    assert all(row["output_ready_ns"] > row["schedule_start_ns"] for row in steps)

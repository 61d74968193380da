# Real vLLM, slowed in its model and throttled by its control group: judged by the sentinel as it is.
import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_llmprism.testing.evaluation.judge_recording import RecordingScore, judge_recording
from otel_llmprism.testing.evaluation.record_vllm import record_vllm
from otel_llmprism.testing.evaluation.report import write_tables
from otel_llmprism.testing.evaluation.seeds import Split
from otel_llmprism.testing.evaluation.suite import SHORT_VLLM_KINDS, plan_short
from otel_llmprism.testing.faults.fault import UnavailableError

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
REPOSITORY = Path(__file__).parents[3]
SEED = 0


def find_engine_python() -> Path:
    """Return the Python that has vLLM; fails in CI, and skips elsewhere."""
    script = [sys.executable, str(REPOSITORY / "tools" / "build_engines.py"), "--check"]
    checked = subprocess.run(script, capture_output=True, text=True, check=False)
    if checked.returncode:
        text = f"{checked.stdout.strip()} (build it with: make engines)"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    return Path(checked.stdout.strip()) / "bin" / "python"


@pytest.fixture(scope="module")
def score(tmp_path_factory: pytest.TempPathFactory) -> RecordingScore:
    python = find_engine_python()
    (plan,) = plan_short(Split.TUNING, SHORT_VLLM_KINDS)
    try:
        recording = record_vllm(plan, tmp_path_factory.mktemp("recordings"), python)
    except UnavailableError as missing:
        pytest.skip(f"this machine cannot make the faults: {missing}")
    machine = recording.read_facts()["machine"]
    if machine["load_before"] > machine["cores"]:
        pytest.skip(
            f"the machine is busy with other work (load {machine['load_before']}): nothing to judge by"
        )
    judged = judge_recording(recording, SEED)
    print(write_tables([judged]))  # noqa: T201  shown with a failure
    return judged


def test_every_episode_of_vllm_is_judged(score: RecordingScore) -> None:
    """What is found, and how often the cause is right, is docs/evaluation.md's to say."""
    assert sorted(outcome.kind for outcome in score.outcomes) == ["cpu_quota", "operator"]
    assert sum(flag.counted.abnormal for flag in score.flags) > 100
    assert score.quiet_steps > 1_000

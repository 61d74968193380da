# Time to first token and end to end as we tell them, against what a streaming client measured by the same
# machine's clock. Where the client itself came late to a processor, its reading is no measure: left out.
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from otel_llmprism.testing.engine_client import Answer
from otel_llmprism.testing.engine_load import LoadPlan, build_asks
from otel_llmprism.testing.engine_server import PLAIN
from otel_llmprism.testing.programs import wait_until

MAX_ERROR_S, MAX_ERROR_SHARE = 0.005, 0.02  # whichever is more
MAX_LATENESS_NS = 2_000_000  # of the client, when it read the first and the last of an answer
MIN_UNDISTURBED = 20
ASKS = 60
TRIES = 8
MIN_MEASUREMENTS = 3  # that must all deviate for the error to be ours
CONCURRENCY = 4  # the client and two cores' worth of engine must not wait for each other

Statistic = Callable[[Sequence[float]], float]


def find_p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


STATISTICS: dict[str, Statistic] = {"median": statistics.median, "p95": find_p95}


def read_value(span: Any, key: str) -> Any:
    (value,) = (attribute.value for attribute in span.attributes if attribute.key == key)
    return getattr(value, value.WhichOneof("value"))


def pair_with_spans(case: Any, answers: list[Answer]) -> list[tuple[Answer, Any]]:
    """Return each answer with the span of its request, once all have arrived."""

    def find_all() -> dict[str, Any]:
        names = {answer.name for answer in answers}
        found = {}
        for span in case.list_spans("llmprism.request"):
            name = read_value(span, "llmprism.request.id").removeprefix("cmpl-").rsplit("-", 2)[0]
            if name in names:
                found[name] = span
        return found if len(found) == len(names) else {}

    spans = wait_until(find_all, "not every request became a span")
    return [(answer, spans[answer.name]) for answer in answers]


def find_deviations(pairs: list[tuple[Answer, Any]]) -> dict[str, tuple[float, float]]:
    """Return (ours, the client's) in seconds for the median and p95 of both times that are too far apart."""
    times = {
        "first token": [
            (read_value(span, "llmprism.request.ttft_s"), (answer.first_ns - answer.sent_ns) / 1e9)
            for answer, span in pairs
        ],
        "end to end": [
            (
                (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                (answer.ended_ns - answer.sent_ns) / 1e9,
            )
            for answer, span in pairs
        ],
    }
    found = {}
    for time_name, values in times.items():
        for name, calculate in STATISTICS.items():
            ours, theirs = (calculate(column) for column in zip(*values, strict=True))
            if abs(ours - theirs) > max(MAX_ERROR_S, MAX_ERROR_SHARE * theirs):
                found[f"{name} of {time_name}"] = ours, theirs
    return found


@pytest.mark.parametrize("tokens", [1, 48])
def test_times_are_those_that_the_client_saw(engines: Any, tokens: int) -> None:
    """A wrong place of measuring deviates in every measurement, a crowded machine in some: one must hold."""
    case = engines.serve(PLAIN)
    deviations = []
    undisturbed: list[Answer] = []
    for number in range(TRIES):
        plan = LoadPlan(ASKS, seed=number, prompt_words=(8, 200), max_tokens=(tokens, tokens))
        answers = case.send(build_asks(plan, f"latency-{tokens}-{number}"), CONCURRENCY)
        assert {answer.finish for answer in answers} == {"length"}
        undisturbed += [answer for answer in answers if answer.lateness_ns <= MAX_LATENESS_NS]
        if len(undisturbed) < MIN_UNDISTURBED:
            continue
        deviations.append(find_deviations(pair_with_spans(case, undisturbed)))
        if not deviations[-1]:
            return
        undisturbed = []
    if len(deviations) < MIN_MEASUREMENTS:
        pytest.skip(f"this machine is too busy to measure: {len(deviations)} measurements, {deviations}")
    pytest.fail(f"nothing of what was measured agreed; (ours, client's) in seconds: {deviations}")

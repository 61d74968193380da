# The reference values were computed from the definition with `sha256sum`, not with the code under test.
from otel_llmprism.model.ids import derive_span_id, derive_step_trace_id, is_kept_at_random

RUN = bytes(range(16))


def test_step_trace_id_follows_its_published_definition() -> None:
    assert derive_step_trace_id("engine-a", RUN, 7).hex() == "cd3c306e8f75bba77d1d30715f717433"


def test_span_ids_of_step_and_ranks_differ_and_follow_their_definition() -> None:
    trace_id = derive_step_trace_id("engine-a", RUN, 7)
    assert derive_span_id(trace_id, "llmprism.step").hex() == "93550503d21fa728"
    assert derive_span_id(trace_id, "llmprism.rank", 3).hex() == "9060b1b269315193"


def test_share_of_steps_kept_at_random_is_the_probability() -> None:
    kept = sum(is_kept_at_random(derive_step_trace_id("engine-a", RUN, n), 0.1) for n in range(20_000))
    assert 0.09 < kept / 20_000 < 0.11


def test_probability_one_keeps_everything_and_zero_nothing() -> None:
    assert is_kept_at_random(b"\xff" * 16, 1.0)
    assert not is_kept_at_random(b"\x00" * 16, 0.0)

# Whatever comes in on a control socket is answered with one object, and does nothing that was not asked.
import json
import string

from hypothesis import given
from hypothesis import strategies as st

from otel_llmprism.instrumentation.control_server import answer_line
from otel_llmprism.native.control_socket import MAX_DEEP_STEPS

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(string.printable),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@given(st.binary(max_size=300))
def test_any_bytes_are_answered(line: bytes) -> None:
    assert json.loads(json.dumps(answer_line(line)))["ok"] in {True, False}


@given(st.dictionaries(st.sampled_from(["command", "version", "steps", "run_folder", "x"]), ANY_JSON))
def test_any_request_is_answered_and_only_known_commands_succeed(request: dict[str, object]) -> None:
    answer = answer_line(json.dumps(request).encode())
    if answer["ok"] is True:
        assert request["command"] in {"status", "off"}, "there is no run to wake or dive into"
    else:
        assert isinstance(answer["error"], str)


@given(ANY_JSON)
def test_no_number_of_steps_but_a_sensible_one_is_taken(steps: object) -> None:
    answer = answer_line(json.dumps({"command": "deep-dive", "steps": steps}).encode())
    is_sensible = type(steps) is int and 1 <= steps <= MAX_DEEP_STEPS
    assert ("whole number" in str(answer["error"])) is not is_sensible

# The fuzzers' corpus, replayed without a fuzzer: both engines and upb agree on every input ever kept.
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_llmprism.native import otlp, otlp_native, otlp_twin

CORPUS = Path(__file__).parents[3] / "native" / "fuzz" / "corpus" / "otlp"
SIGNALS = ("traces", "logs", "metrics")
KEYS = otlp.KeySelection(("k", "abc"), ("k",))


def run(scan: Callable[..., otlp.Scan], payload: bytes, signal: str) -> otlp.Scan | tuple[int, str]:
    try:
        return scan(payload, signal, KEYS)
    except otlp.MalformedRequestError as error:
        return error.offset, error.why


def test_every_kept_input_is_judged_and_read_alike(oracle: Callable[[str, bytes], bool]) -> None:
    inputs = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    accepted = 0
    for data in inputs:
        signal, payload = SIGNALS[data[0] % 3] if data else "traces", data[2:]
        told = run(otlp_twin.scan, payload, signal)
        assert isinstance(told, otlp.Scan) == oracle(signal, payload), data.hex()
        accepted += isinstance(told, otlp.Scan)
        if otlp_native.find_scanner() is not None:
            assert run(otlp_native.scan, payload, signal) == told, data.hex()
    assert len(inputs) > 100
    assert 0 < accepted < len(inputs)


@pytest.mark.skipif(otlp_native.find_scanner() is None, reason="libllmprism is not built here")
def test_every_kept_input_survives_the_other_signals_too() -> None:
    for path in sorted(CORPUS.iterdir()):
        for signal in SIGNALS:
            payload = path.read_bytes()
            assert run(otlp_native.scan, payload, signal) == run(otlp_twin.scan, payload, signal)

# A stored model: the same answers after reading, another version or damage refused with one line.
import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otel_llmprism.baseline.expected import (
    BaselineFormatError,
    ExpectedTime,
    dump_expected,
    load_expected,
)
from otel_llmprism.baseline.expected.format import DIGEST_BYTES, MAGIC, PREFIX, VERSION
from otel_llmprism.model.steps import U64
from otel_llmprism.model.work import WorkTable

Invent = Callable[..., tuple[WorkTable, U64]]
Header = dict[str, Any]
Change = Callable[[Header], object]


def rewrite_header(raw: bytes, change: Change) -> bytes:
    """A hostile file: the header changed, the digest right again."""
    _, version, size = PREFIX.unpack_from(raw)
    header = json.loads(raw[PREFIX.size : PREFIX.size + size])
    change(header)
    text = json.dumps(header).encode()
    body = PREFIX.pack(MAGIC, version, len(text)) + text + raw[PREFIX.size + size : -DIGEST_BYTES]
    return body + hashlib.sha256(body).digest()


def test_a_model_answers_the_same_after_being_stored(model: ExpectedTime, invent: Invent) -> None:
    work, _ = invent(200, seed=20)
    again = load_expected(dump_expected(model))
    assert again.version == model.version
    assert again.notes == model.notes
    for first, second in zip(
        (model.predict(work).expected_ns, model.predict(work).spread),
        (again.predict(work).expected_ns, again.predict(work).spread),
        strict=True,
    ):
        assert np.array_equal(first, second)
    assert dump_expected(again) == dump_expected(model)


def test_a_model_of_a_later_version_is_refused_with_both_versions(model: ExpectedTime) -> None:
    raw = dump_expected(model)
    later = PREFIX.pack(MAGIC, VERSION + 1, 10) + raw[PREFIX.size :]
    with pytest.raises(BaselineFormatError, match=rf"format {VERSION + 1}.*{VERSION}"):
        load_expected(later)


@pytest.mark.parametrize("at", [0, 9, 40, 3000, -40, -1])
def test_one_flipped_bit_anywhere_is_refused(model: ExpectedTime, at: int) -> None:
    raw = bytearray(dump_expected(model))
    raw[at] ^= 1
    with pytest.raises(BaselineFormatError):
        load_expected(bytes(raw))


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["parts"][0].update(trees=10**9),
        lambda header: header["parts"][0].update(trees=-1),
        lambda header: header["parts"][0]["structures"][0].update(terms=True),
        lambda header: header["parts"][0]["structures"][0].update(resources=3),
        lambda header: header["parts"][0].update(weight=1e400),
        lambda header: header["parts"][0].update(low=10**400),
        lambda header: header["parts"][0].update(work=["x"] * 1000),
        lambda header: header["parts"][0].update(work="decode"),
        lambda header: header["parts"][0].update(pairs=[0, 99]),
        lambda header: header["parts"][0].pop("kind"),
        lambda header: header["parts"][0].update(places=0),
        lambda header: header["parts"].append(header["parts"][0]),
        lambda header: header.update(parts={}),
        lambda header: header.update(notes=[1]),
        lambda header: header["parts"].pop(),
        lambda header: header["parts"][0].update(steps=2.5),
    ],
)
def test_a_header_that_lies_is_refused_with_one_line(model: ExpectedTime, change: Change) -> None:
    with pytest.raises(BaselineFormatError) as refused:
        load_expected(rewrite_header(dump_expected(model), change))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_an_array_with_a_value_out_of_bounds_is_refused(model: ExpectedTime, value: float) -> None:
    raw = dump_expected(model)
    body = raw[: -DIGEST_BYTES - 8] + np.array([value], "<f8").tobytes()
    with pytest.raises(BaselineFormatError, match="out of bounds"):
        load_expected(body + hashlib.sha256(body).digest())


def test_a_splits_place_outside_the_ramps_is_refused(model: ExpectedTime) -> None:
    def shrink(header: Header) -> None:
        part = header["parts"][-1]
        part["ramps"] -= 1  # all that follows is read 20 bytes off

    with pytest.raises(BaselineFormatError):
        load_expected(rewrite_header(dump_expected(model), shrink))

# What fuzzing found worth keeping, decoded by library and twin: no crash, and the same answer from both.
from pathlib import Path

import pytest

from otel_llmprism.native import ledger, ledger_twin
from otel_llmprism.native.ledger_schema import pack_schema
from otel_llmprism.native.library import load_library

FUZZ = Path(__file__).parents[2] / "native" / "fuzz"
CORPUS = sorted((FUZZ / "corpus" / "ledger").iterdir())


def cut_at_magic(raw: bytes) -> list[bytes]:
    first, *others = raw.split(b"LLPL")
    return [first, *(b"LLPL" + other for other in others)]


def test_fuzzer_decodes_by_the_schema_in_use() -> None:
    """Else: write pack_schema() to native/fuzz/ledger_schema.bin."""
    assert (FUZZ / "ledger_schema.bin").read_bytes() == pack_schema()


def test_corpus_has_good_and_bad_chunks() -> None:
    verdicts = [bool(ledger.decode_chunks([path.read_bytes()]).refused) for path in CORPUS]
    assert {True, False} == set(verdicts)


@pytest.mark.skipif(load_library() is None, reason="libllmprism is not built: the twin would meet itself")
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_library_and_twin_agree_on_every_kept_input(path: Path) -> None:
    raw = path.read_bytes()
    for chunks in ([raw], cut_at_magic(raw)):
        assert ledger.DecodedChunks(*ledger_twin.decode_chunks(chunks)) == ledger.decode_chunks(chunks)

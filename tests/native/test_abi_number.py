# The number that keeps an old library from being called changes whenever the headers do.
import hashlib
import re
from pathlib import Path

from otel_llmprism.native.library import ABI_VERSION

HEADERS = Path(__file__).parents[2] / "native" / "include" / "llmprism"
# Of the headers as they are in ABI_VERSION; comments do not count. On a mismatch: raise the number in
# abi.h and library.py, then write the new digest here.
RECORDED = (4, "dd0d66a7246e04200e22349365228c7820c2fde3e2a0f73352258c7dc00435f5")


def hash_headers() -> str:
    digest = hashlib.sha256()
    for header in sorted(HEADERS.glob("*.h")):
        code = re.sub(r"//[^\n]*", "", header.read_text(encoding="utf-8"))
        digest.update(" ".join(code.split()).encode())
    return digest.hexdigest()


def test_changed_header_has_a_new_abi_number() -> None:
    assert (ABI_VERSION, hash_headers()) == RECORDED


def test_python_and_cpp_name_the_same_number() -> None:
    found = re.search(r"kAbiVersion = (\d+);", (HEADERS / "abi.h").read_text(encoding="utf-8"))
    assert found
    assert int(found[1]) == ABI_VERSION

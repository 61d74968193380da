# Builds the ledger decoder with ASan, UBSan and libFuzzer under build/ and fuzzes it from the corpus in
# tests/native/corpus/ledger. Ends with 1 when something was found; needs clang.
import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from otel_llmprism.native.ledger_schema import pack_schema

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "tests" / "native" / "corpus" / "ledger"
BUILD = ROOT / "build" / "fuzz"
FLAGS = ("-std=c++20", "-g", "-O1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")


def main() -> int:
    parser = argparse.ArgumentParser(description="fuzz the native ledger decoder")
    parser.add_argument("--seconds", type=int, default=60)
    seconds = parser.parse_args().seconds
    compiler = shutil.which("clang++")
    if compiler is None:
        print("fuzzing needs clang++ (Debian: clang, libclang-rt-dev)")
        return 1
    BUILD.mkdir(parents=True, exist_ok=True)
    program, schema, found = BUILD / "ledger_fuzz", BUILD / "ledger.schema", BUILD / "ledger_corpus"
    found.mkdir(exist_ok=True)
    schema.write_bytes(pack_schema())
    sources = [ROOT / "native/fuzz/ledger_fuzz.cpp", *sorted((ROOT / "native/src").glob("ledger*.cpp"))]
    sanitizers = "-fsanitize=fuzzer,address,undefined"
    include = f"-I{ROOT / 'native/include'}"
    subprocess.run(
        [compiler, *FLAGS, sanitizers, include, *map(str, sources), "-o", str(program)], check=True
    )
    environment = {**os.environ, "LLMPRISM_LEDGER_SCHEMA": str(schema)}
    options = [f"-max_total_time={seconds}", "-max_len=65536", "-timeout=10", f"-artifact_prefix={BUILD}/"]
    command = [str(program), *options, str(found), str(CORPUS)]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

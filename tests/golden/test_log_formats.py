# The log's two formats, byte for byte. Regenerate after a wanted change of format:
# LLMPRISM_REGENERATE=1 .venv/bin/python -m pytest tests/golden/test_log_formats.py
# Format 0 is a synthetic previous version: no salt, no time of acceptance in a record.
import os
import secrets
import shutil
from pathlib import Path

import pytest

from otel_llmprism.native import log_frame
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ingress_config import LogConfig
from otel_llmprism.pipeline.log.errors import LogStartError
from otel_llmprism.pipeline.log.reader import LogRecord
from otel_llmprism.pipeline.log.write_ahead_log import WriteAheadLog
from otel_llmprism.testing.clocks import FakeClock

GOLDEN = Path(__file__).parent / "log"
REQUESTS = [(1, b"first request"), (2, b"a log request, freed"), (3, b""), (1, bytes(range(256)))]
CREATED_NS = 1_700_000_000_000_000_000


def open_log(folder: Path, version: int) -> WriteAheadLog:
    clock = FakeClock(CREATED_NS)
    log = WriteAheadLog(LogConfig(folder, format_version=version), Counters(), realtime_ns=clock)
    log.open()
    return log


def write_log(folder: Path, version: int) -> None:
    log = open_log(folder, version)
    positions = [log.append(signal, payload) for signal, payload in REQUESTS]
    log.free(positions[1].segment, positions[1].sequence)
    log.close()


def read_log(folder: Path, version: int) -> list[LogRecord]:
    log = open_log(folder, version)
    records = []
    while (record := log.read_next()) is not None:
        records.append(record)
    log.close()
    return records


@pytest.fixture(params=[0, 1])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(secrets, "randbits", lambda _bits: 0x1234ABCD)
    return int(request.param)


def test_what_is_written_is_the_committed_golden(tmp_path: Path, version: int) -> None:
    write_log(tmp_path / "log", version)
    written = {path.suffix: path.read_bytes() for path in (tmp_path / "log").glob("0*")}
    for suffix, raw in written.items():
        golden = GOLDEN / f"format-{version}{suffix}"
        if os.environ.get("LLMPRISM_REGENERATE"):
            golden.write_bytes(raw)
        assert raw == golden.read_bytes()
    assert set(written) == {".wal", ".ack"}


@pytest.mark.parametrize("writes", [0, 1])
def test_either_format_is_read_whichever_is_written(tmp_path: Path, version: int, writes: int) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    for suffix in (".wal", ".ack"):
        shutil.copy(GOLDEN / f"format-{version}{suffix}", folder / f"{1:016d}{suffix}")
    records = read_log(folder, writes)
    assert [(record.signal, record.payload) for record in records] == [
        request for index, request in enumerate(REQUESTS) if index != 1
    ]
    assert {record.accepted_ns for record in records} == {CREATED_NS}


def test_program_of_the_format_before_refuses_by_name_and_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "log", 1)
    monkeypatch.setattr(log_frame, "READABLE_VERSIONS", (0,))
    with pytest.raises(LogStartError, match=r"is of format 1, but this program reads \(0,\).*drain"):
        open_log(tmp_path / "log", 0)
    assert len(list((tmp_path / "log").glob("*.wal"))) == 1

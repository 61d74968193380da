# A log in a temporary folder, closed at the end whatever the test did.
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ingress_config import MIN_LOG_BYTES, LogConfig
from otel_llmprism.pipeline.log.disk import Disk
from otel_llmprism.pipeline.log.write_ahead_log import WriteAheadLog

BuildLog = Callable[..., WriteAheadLog]


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def open_log(tmp_path: Path, counters: Counters) -> Iterator[BuildLog]:
    """Open a log on the test's folder; what was opened is closed at the end."""
    opened: list[WriteAheadLog] = []

    def build(
        *,
        segment_bytes: int = 0,
        max_bytes: int = 4 * MIN_LOG_BYTES,
        is_synced: bool = False,
        disk: Disk | None = None,
    ) -> WriteAheadLog:
        config = LogConfig(tmp_path / "log", max_bytes=max_bytes, segment_bytes=segment_bytes)
        log = WriteAheadLog(config, counters, is_synced=is_synced, disk=disk)
        opened.append(log)
        log.open()
        return log

    yield build
    for log in opened:
        log.close()

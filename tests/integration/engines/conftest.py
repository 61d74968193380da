# Real vLLM servers for tests, each with a backend of its own: what was asked of it, what its scheduler did by
# an independent book, and everything that was sent. At most one lives at a time, since each takes all cores.
import os
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.model.signals import Signal
from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.native.ledger import decode_chunks
from otel_llmprism.receivers.ledger_tables import wrap_columns
from otel_llmprism.testing.engine_client import Answer, Ask
from otel_llmprism.testing.engine_load import send_load
from otel_llmprism.testing.engine_server import EngineServer, ServerShape
from otel_llmprism.testing.engine_token_book import TokenBook, read_token_book
from otel_llmprism.testing.otlp_server import OtlpServer
from otel_llmprism.testing.programs import Programs

REPOSITORY = Path(__file__).parents[3]
SHOWN_LOG_CHARACTERS = 6000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a real engine; starting one takes up to a minute."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.engine)
            item.add_marker(pytest.mark.timeout(600))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Append the end of the last server's log to the report of a failed test."""
    report = yield
    house = item.config.stash.get(ENGINES, None)
    if report.failed and house is not None and (log := house.read_last_log()):
        report.sections.append(("log of vLLM", log[-SHOWN_LOG_CHARACTERS:]))
    return report


@dataclass
class EngineCase:
    """One server's life. What was sent is whole once `finish` returned."""

    server: EngineServer
    backend: OtlpServer
    programs: Programs
    answers: list[Answer] = field(default_factory=list)

    def send(self, asks: Sequence[Ask], concurrency: int) -> list[Answer]:
        """Send asks from a process of its own and return what it saw; `answers` gathers all of them."""
        answers = send_load(self.programs, self.server, asks, concurrency=concurrency)
        self.answers += answers
        return answers

    def finish(self) -> None:
        """End the server and wait for its exporter; harmless the second time."""
        program = self.server.program
        if program is not None and program.process.poll() is None:
            self.server.stop()

    @property
    def is_living(self) -> bool:
        return self.server.program is not None and self.server.program.process.poll() is None

    @property
    def log(self) -> str:
        assert self.server.program is not None
        return self.server.program.read_log()

    def read_book(self) -> TokenBook:
        return read_token_book(self.server.list_token_logs())

    def list_spans(self, name: str) -> list[Span]:
        requests = [
            ExportTraceServiceRequest.FromString(one.payload) for one in self.backend.received(Signal.TRACES)
        ]
        scopes = [scope for r in requests for rs in r.resource_spans for scope in rs.scope_spans]
        return [span for scope in scopes for span in scope.spans if span.name == name]

    def read_ledger(self) -> list[LedgerTables]:
        """Return the ledger's chunks as they were sent."""
        requests = [
            ExportLogsServiceRequest.FromString(one.payload) for one in self.backend.received(Signal.LOGS)
        ]
        scopes = [scope for r in requests for rl in r.resource_logs for scope in rl.scope_logs]
        records = [record for scope in scopes for record in scope.log_records]
        bodies = [r.body.bytes_value for r in records if r.event_name == "llmprism.ledger"]
        decoded = [decode_chunks([body]) for body in bodies]
        assert all(not chunk.refused for chunk in decoded)
        return [wrap_columns(chunk.columns) for chunk in decoded]


class Engines:
    """Starts servers of the shapes asked for; the one that lives is used again when it fits."""

    def __init__(self, python: Path, folder: Path) -> None:
        self._python = python
        self._folder = folder
        self._living: tuple[EngineCase, tuple[object, ...], Programs] | None = None
        self._count = 0

    def serve(self, shape: ServerShape, environment: Mapping[str, str] | None = None) -> EngineCase:
        """Return a living server of this shape and environment, which other tests may have used."""
        key = (shape.name, *sorted((environment or {}).items()))
        if self._living and self._living[1] == key and self._living[0].is_living:
            return self._living[0]
        self.end()
        return self._start(shape, environment or {}, key)

    def read_last_log(self) -> str:
        """Return the log of the server that was started last; empty when none was."""
        logs = sorted(self._folder.glob("*/00-vllm-*.log"))
        return logs[-1].read_text(errors="replace") if logs else ""

    def end(self) -> None:
        """End the server that lives."""
        if self._living is None:
            return
        case, _, programs = self._living
        self._living = None
        try:
            case.finish()
        finally:
            programs.__exit__()
            case.backend.__exit__()

    def _start(
        self, shape: ServerShape, environment: Mapping[str, str], key: tuple[object, ...]
    ) -> EngineCase:
        folder = self._folder / f"{self._count:02d}-{shape.name}"
        folder.mkdir()
        self._count += 1
        programs, backend = Programs(folder), OtlpServer().__enter__()
        endpoint = f"http://127.0.0.1:{backend.grpc_port}"
        server = EngineServer(self._python, folder, shape, otlp_endpoint=endpoint, environment=environment)
        case = EngineCase(server, backend, programs)
        self._living = (case, key, programs)
        server.start(programs)
        return case


ENGINES = pytest.StashKey[Engines]()


@pytest.fixture(scope="session")
def engine_python() -> Path:
    """Return the Python that has vLLM; fails in CI, and skips elsewhere, when it is not built."""
    script = [sys.executable, str(REPOSITORY / "tools" / "build_engines.py")]
    checked = subprocess.run([*script, "--check"], capture_output=True, text=True, check=False)
    if checked.returncode:
        text = f"{checked.stdout.strip()} (build it with: make engines)"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    return Path(checked.stdout.strip()) / "bin" / "python"


@pytest.fixture(scope="session")
def engines(
    engine_python: Path, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Engines]:
    """Offer servers: `engines.serve(PLAIN)`; all are ended when the tests are over."""
    house = Engines(engine_python, tmp_path_factory.mktemp("engines"))
    pytestconfig.stash[ENGINES] = house
    yield house
    house.end()

# Prompts that an application itself puts into its telemetry: they reach its backend as they are, and are in
# no log, no error and no search. Prompts that an engine merely served are not even in what waits on the disk.
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_llmprism.exporters.otlp_client import OtlpClient
from otel_llmprism.exporters.otlp_client_config import OtlpClientConfig
from otel_llmprism.exporters.otlp_client_result import SendStatus
from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.dead_letters import read_dead_letters
from otel_llmprism.testing.otlp_server import OtlpServer, Refuse
from otel_llmprism.testing.processor_program import ProcessorSetup
from otel_llmprism.testing.programs import Program, Programs, find_free_port, wait_until

CANARY = "canary-content-6512bd43"
SERVICE, MODEL = "chat-application", "model-of-the-test"
CONTENT = {
    "gen_ai.input.messages": json.dumps([{"role": "user", "content": CANARY}]),
    "gen_ai.output.messages": CANARY,
    "gen_ai.prompt.0.content": CANARY,
    "gen_ai.completion": CANARY,
    "input.value": CANARY,
}
CONTROL = "req-1"  # of the mini engine: what is searched does hold its requests


class UpWithBackend:
    """`up` that sends on to a backend, as verbose as it can be."""

    def __init__(self, programs: Programs, folder: Path, backend: OtlpServer) -> None:
        self.backend = backend
        self.data = folder / "data"
        self.ui_port, self.http_port = find_free_port(), find_free_port()
        command = [sys.executable, "-m", "otel_llmprism", "up", "-v", "--data", str(self.data)]
        command += ["--otlp-grpc", "127.0.0.1:0", "--otlp-http", f"127.0.0.1:{self.http_port}"]
        command += ["--ui", f"127.0.0.1:{self.ui_port}", "--export", backend.http_endpoint]
        self.program = programs.start("up", command).await_port(self.ui_port)

    def ask(self, path: str, **parameters: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.ui_port}/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def search(self, tags: dict[str, str]) -> tuple[int, str]:
        return self.ask("api/traces", service=SERVICE, tags=json.dumps(tags))


@pytest.fixture
def up(programs: Programs, tmp_path: Path) -> Iterator[UpWithBackend]:
    with OtlpServer() as backend:
        yield UpWithBackend(programs, tmp_path, backend)


def send_chat(http_port: int) -> None:
    """Do as instrumented applications do that record content: in attributes, events and exceptions."""
    resource = Resource.create({"service.name": SERVICE})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    endpoint = f"http://127.0.0.1:{http_port}/v1/traces"
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint)))
    tracer = provider.get_tracer("application")
    with tracer.start_as_current_span("chat") as span:
        span.set_attributes({**CONTENT, "gen_ai.request.model": MODEL})
        span.add_event("gen_ai.content.prompt", {"gen_ai.prompt": CANARY})
        span.record_exception(ValueError(CANARY))
    provider.shutdown()


def test_content_reaches_the_backend_and_no_search_and_no_log(up: UpWithBackend) -> None:
    send_chat(up.http_port)
    (arrived,) = up.backend.wait_for(1)
    (resource,) = ExportTraceServiceRequest.FromString(arrived.payload).resource_spans
    (span,) = resource.scope_spans[0].spans
    sent = {item.key: item.value.string_value for item in span.attributes}
    assert sent == {**CONTENT, "gen_ai.request.model": MODEL}
    assert {event.name for event in span.events} == {"gen_ai.content.prompt", "exception"}
    wait_until(lambda: "chat" in up.search({"gen_ai.request.model": MODEL})[1], "the span is not stored")
    for key, value in {**CONTENT, "gen_ai.prompt": CANARY, "exception.message": CANARY}.items():
        status, answer = up.search({key: value})
        assert status == 400, f"content can be searched by {key}"
        assert CANARY not in answer
    for path in ("api/services", "api/llmprism/v1/traces", "api/llmprism/v1/events", "metrics"):
        assert CANARY not in up.ask(path)[1]
    assert up.program.stop() == 0
    assert CANARY not in up.program.read_log()


def test_content_in_requests_that_are_refused_is_in_no_answer_and_no_log(up: UpWithBackend) -> None:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(name=CANARY)
    span.attributes.add(key="gen_ai.prompt").value.string_value = CANARY
    whole = request.SerializeToString()  # its ids are missing
    client = OtlpClient(OtlpClientConfig(endpoint=f"http://127.0.0.1:{up.http_port}"))
    results = [client.send(Signal.TRACES, payload) for payload in (whole, whole[:-1], whole + b"\xff")]
    client.close()
    assert [one.status for one in results] == [
        *(SendStatus.PARTIAL, SendStatus.PERMANENT, SendStatus.PERMANENT),
    ]
    assert not any(CANARY in one.message for one in results)
    assert up.program.stop() == 0
    assert CANARY not in up.program.read_log()


@pytest.mark.parametrize("fate", ["waits", "is rejected"])
def test_prompts_of_an_engine_are_not_in_what_lies_on_the_processors_disk(
    programs: Programs, tmp_path: Path, fate: str
) -> None:
    """The backend takes nothing: all that the engine told is in the log or in the dead letters."""
    with OtlpServer() as backend:
        code = grpc.StatusCode.INVALID_ARGUMENT if fate == "is rejected" else grpc.StatusCode.UNAVAILABLE
        backend.follow(then=Refuse(code))
        service = {"telemetry": {"log_level": "debug"}, "shutdown_timeout": "1s"}
        setup = ProcessorSetup(tmp_path, backend.grpc_endpoint, service=service)
        processor = setup.start(programs).await_port(setup.grpc_port)
        engine = start_engine(programs, tmp_path, setup.grpc_port)
        assert engine.wait(120) == 0
        wait_until(lambda: CONTROL.encode() in read_disk(setup), "nothing of the engine is on the disk")
        assert processor.stop() == 0
    content = read_disk(setup)
    assert CONTROL.encode() in content
    assert CANARY.encode() not in content
    assert bool(list(read_dead_letters(setup.log_folder / "dead-letters"))) is (fate == "is rejected")
    assert not any(CANARY in program.read_log() for program in programs.started)


def start_engine(programs: Programs, folder: Path, grpc_port: int) -> Program:
    command = [sys.executable, "-m", "otel_llmprism.testing.mini_engine", "--requests", "60"]
    command += ["--rate", "60", "--output", "8", "--canary-prompt", CANARY]
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{grpc_port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_LLMPRISM_STEPS": "all",
        "OTEL_LLMPRISM_RUNTIME_DIR": str(folder / "runtime"),
        "OTEL_LLMPRISM_LEDGER_DIR": str(folder / "ledger"),
    }
    return programs.start("engine", command, environment)


def read_disk(setup: ProcessorSetup) -> bytes:
    files = [path for path in setup.log_folder.rglob("*") if path.is_file()]
    return b"".join(path.read_bytes() for path in files)

# A real vLLM server as a child process: one of a few shapes, instrumented or not, ready when it answers,
# ended with all that belongs to it. Knows where its evidence lies (ledger, token log), not what is in it.
import http.client
import os
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from otel_llmprism.testing.engine_model import write_model
from otel_llmprism.testing.engine_overlay import write_overlay
from otel_llmprism.testing.engine_token_log import PATH_VARIABLE
from otel_llmprism.testing.programs import Program, ProgramError, Programs, find_free_port, wait_until

START_TIMEOUT_S = 240.0  # 25 to 55 s on two quiet cores
STOP_TIMEOUT_S = 60.0
EXPORTER = "otel_llmprism.service.exporter_process"
_SERVE = Path(__file__).parent / "engine_serve.py"


@dataclass(frozen=True, slots=True)
class ServerShape:
    """What makes one server differ from another."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    front_ends: int = 1


_CORES = sorted(os.sched_getaffinity(0))

# On one core, so that its client is not kept from reading in time.
PLAIN = ServerShape(
    "plain",
    ("--max-model-len", "1024", "--max-num-seqs", "16"),
    {"VLLM_CPU_OMP_THREADS_BIND": str(_CORES[0])},
)
# A small token budget, and room for 256 requests only while they are short: batches of 256, chunked prefill
# and preemption all happen.
BATCH_256 = ServerShape(
    "batch256",
    (
        *("--max-model-len", "256", "--max-num-seqs", "256"),
        *("--max-num-batched-tokens", "256"),
        *("--block-size", "32", "--num-gpu-blocks-override", "448"),
    ),
)
TENSOR_PARALLEL_2 = ServerShape(
    "tensor-parallel-2",
    ("--max-model-len", "512", "--tensor-parallel-size", "2"),
    {"VLLM_CPU_OMP_THREADS_BIND": f"{_CORES[0]}|{_CORES[-1]}"},
)
TWO_FRONT_ENDS = ServerShape(
    "two-front-ends", ("--max-model-len", "512", "--max-num-seqs", "64"), front_ends=2
)


class EngineServer:
    """One server in `folder`, started with the Python of the engines' environment."""

    def __init__(
        self,
        python: Path,
        folder: Path,
        shape: ServerShape,
        *,
        otlp_endpoint: str = "",
        environment: Mapping[str, str] | None = None,
        is_instrumented: bool = True,
    ) -> None:
        self.shape = shape
        self.folder = folder
        self.ledger, self.runtime = folder / "ledger", folder / "runtime"
        self.port = find_free_port()
        self.model = str(write_model(folder / "model"))
        self._python = python
        self._environment = {
            **_build_engine_environment(folder, is_instrumented=is_instrumented),
            **_build_telemetry_environment(self, otlp_endpoint),
            **shape.environment,
            **(environment or {}),
        }
        self.program: Program | None = None

    def start(self, programs: Programs) -> Self:
        """Start it and return once it answers; raises ProgramError when it ends or takes too long."""
        program = programs.start(f"vllm-{self.shape.name}", self._build_command(), self._environment)
        self.program = program

        def is_ready() -> bool:
            if (status := program.process.poll()) is not None:
                raise ProgramError(f"vLLM ended with {status}:\n{program.read_log()[-4000:]}")
            return is_healthy(self.port)

        wait_until(is_ready, f"vLLM does not answer; its log is {program.log}", START_TIMEOUT_S)
        return self

    def stop(self) -> int:
        """End it as a service manager does; returns once its processes and its exporter are gone."""
        assert self.program is not None, "start it first"
        status = self.program.stop(STOP_TIMEOUT_S)
        wait_until(lambda: not self.list_processes(), "processes of vLLM are left", STOP_TIMEOUT_S)
        return status

    def list_processes(self) -> dict[int, str]:
        """Return pid and command line of what runs for this server, its exporter included."""
        mark = f"{PATH_VARIABLE}={self._environment[PATH_VARIABLE]}".encode()
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark not in (process / "environ").read_bytes().split(b"\0"):
                    continue
                if (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue  # it ended meanwhile
        return found

    def list_exporters(self) -> list[int]:
        return [pid for pid, command in self.list_processes().items() if EXPORTER in command]

    def list_token_logs(self) -> list[Path]:
        return sorted(self.folder.glob("tokens.jsonl.*"))

    def _build_command(self) -> list[str | Path]:
        common = ("--load-format", "dummy", "--enforce-eager", "--dtype", "float32", "--host", "127.0.0.1")
        words = [*common, "--port", str(self.port), *self.shape.arguments]
        launch: list[str | Path] = [self._python.parent / "opentelemetry-instrument", self._python]
        if self.shape.front_ends > 1:
            count = str(self.shape.front_ends)
            return [*launch, _SERVE, "serve", self.model, *words, "--api-server-count", count]
        return [*launch, "-m", "vllm.entrypoints.openai.api_server", "--model", self.model, *words]


def is_healthy(port: int) -> bool:
    """Tell whether a server answers 200 to GET /health."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def _build_engine_environment(folder: Path, *, is_instrumented: bool) -> dict[str, str]:
    overlay = write_overlay(folder / "overlay", is_instrumented=is_instrumented)
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, overlay)),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        PATH_VARIABLE: str(folder / "tokens.jsonl"),
    }
    # The native library is built into the environment that runs the tests, not into the engine's.
    native = Path(sysconfig.get_path("platlib")) / "otel_llmprism" / "native"
    if (native / "libllmprism.so").exists():
        environment["OTEL_LLMPRISM_NATIVE"] = str(native)
    return environment


def _build_telemetry_environment(server: EngineServer, otlp_endpoint: str) -> dict[str, str]:
    if not otlp_endpoint:
        exporters = ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER")
        endpoint = dict.fromkeys(exporters, "none")
    else:
        endpoint = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": otlp_endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        }
    return {
        **endpoint,
        "OTEL_LLMPRISM_RUNTIME_DIR": str(server.runtime),
        "OTEL_LLMPRISM_LEDGER_DIR": str(server.ledger),
        "OTEL_METRIC_EXPORT_INTERVAL": "1000",
    }

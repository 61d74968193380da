# The two systems that the relay benchmarks compare, as commands and configurations: the Collector with its
# transform processor, ours with its stamp enricher. Each gives the same spans the same attributes.
import importlib.metadata
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml
from relay_payload import MATCH_KEY, MATCH_VALUE, STAMPS

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Setup:
    """One run: where to listen and to send, and what is asked of the system."""

    port: int
    health_port: int
    sink: str
    folder: Path
    is_durable: bool
    compression: str
    is_enriching: bool = True


def find_collector() -> Path:
    script = ROOT / "tools" / "build_tools.py"
    path = Path(_ask(sys.executable, str(script), "--print-dir")) / "otelcol-llmprism"
    if not path.exists():
        sys.exit("relay: the Collector is not built; run: make tools")
    return path


def build_collector_command(setup: Setup) -> list[str]:
    path = setup.folder / "collector.yaml"
    path.write_text(yaml.safe_dump(_build_collector_config(setup)))
    return [str(find_collector()), "--config", str(path)]


def build_ours_command(setup: Setup) -> list[str]:
    path = setup.folder / "ours.yaml"
    path.write_text(yaml.safe_dump(_build_ours_config(setup)))
    return [sys.executable, "-m", "otel_llmprism", "processor", "--config", str(path)]


def read_versions() -> str:
    commit = _ask("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD")
    python, grpc = sys.version.split()[0], importlib.metadata.version("grpcio")
    return (
        f"{_ask(str(find_collector()), '--version')}; otel-llmprism {commit}, Python {python}, grpcio {grpc}"
    )


def read_machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "?")
    return f"{model}, {os.cpu_count()} CPUs, {os.uname().sysname} {os.uname().release}"


def _ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _build_collector_config(setup: Setup) -> dict[str, object]:
    grpc = {"endpoint": f"127.0.0.1:{setup.port}", "max_recv_msg_size_mib": 64}
    queue: dict[str, object] = {"queue_size": 2000, "num_consumers": 10}
    extensions: dict[str, object] = {}
    if setup.is_durable:
        (setup.folder / "storage").mkdir()
        extensions["file_storage"] = {"directory": str(setup.folder / "storage")}
        queue["storage"] = "file_storage"
    statements = [f"set(span.attributes[{json.dumps(k)}], {json.dumps(v)})" for k, v in STAMPS.items()]
    match = f'span.attributes["{MATCH_KEY}"] == "{MATCH_VALUE}"'
    transform = {"trace_statements": [{"conditions": [match], "statements": statements}]}
    return {
        "receivers": {"otlp": {"protocols": {"grpc": grpc}}},
        "processors": {"transform": transform},
        "exporters": {
            "otlp_grpc": {
                "endpoint": setup.sink,
                "compression": setup.compression,
                "tls": {"insecure": True},
                "sending_queue": queue,
            }
        },
        "extensions": extensions,
        "service": {
            "extensions": list(extensions),
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
            "pipelines": {
                "traces": {
                    "receivers": ["otlp"],
                    "processors": ["transform"] if setup.is_enriching else [],
                    "exporters": ["otlp_grpc"],
                }
            },
        },
    }


def _build_ours_config(setup: Setup) -> dict[str, object]:
    stamp = {"where_attribute": MATCH_KEY, "equals": MATCH_VALUE, "attributes": STAMPS}
    grpc = {"endpoint": f"127.0.0.1:{setup.port}", "limits": {"max_request_bytes": "64MiB"}}
    return {
        "receivers": {"otlp": {"protocols": {"grpc": grpc}}},
        "processors": {"stamp": stamp} if setup.is_enriching else {},
        "exporters": {"otlp": {"endpoint": f"grpc://{setup.sink}", "compression": setup.compression}},
        "service": {
            "mode": "inline",
            "durability": "process" if setup.is_durable else "memory",
            "log": {"directory": str(setup.folder / "log")},
            "health": {"endpoint": f"127.0.0.1:{setup.health_port}"},
            "telemetry": {"log_level": "warning"},
        },
    }

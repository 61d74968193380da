# The processor as a program under test: its file written, the process started, its counters read.
import re
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from otel_llmprism.testing.programs import Program, Programs, find_free_port

TIMEOUT_S = 10.0
FAST_RETRY = {"initial_interval": "50ms", "max_interval": "200ms"}  # a test need not wait for seconds


@dataclass(frozen=True, slots=True)
class ProcessorSetup:
    """Where a processor listens, sends and writes; started as often as the test wants."""

    folder: Path
    backend: str  # endpoint of the exporter
    grpc_port: int = field(default_factory=find_free_port)
    http_port: int = field(default_factory=find_free_port)
    health_port: int = field(default_factory=find_free_port)
    processors: Mapping[str, Any] = field(default_factory=dict)
    exporter: Mapping[str, Any] = field(default_factory=dict)
    service: Mapping[str, Any] = field(default_factory=dict)

    @property
    def log_folder(self) -> Path:
        return self.folder / "write-ahead-log"

    def start(self, programs: Programs, environment: Mapping[str, str] | None = None) -> Program:
        """Write the file, start the process; it may not listen yet."""
        path = self.folder / "processor.yaml"
        path.write_text(yaml.safe_dump(self._build_file()))
        command = [sys.executable, "-m", "otel_llmprism", "processor", "--config", str(path)]
        return programs.start("processor", command, environment)

    def read_counters(self) -> dict[str, float]:
        """Return the series of /metrics by their names with labels."""
        url = f"http://127.0.0.1:{self.health_port}/metrics"
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            text = answer.read().decode()
        return {name: float(value) for name, value in re.findall(r"^([^#\s]\S*) (\S+)$", text, re.MULTILINE)}

    def sum_counter(self, name: str, **labels: str) -> float:
        """Return the sum of a counter's series that have these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            value
            for series, value in self.read_counters().items()
            if series.partition("{")[0] == name and all(label in series for label in wanted)
        )

    def _build_file(self) -> dict[str, Any]:
        protocols = {
            "grpc": {"endpoint": f"127.0.0.1:{self.grpc_port}"},
            "http": {"endpoint": f"127.0.0.1:{self.http_port}"},
        }
        service = {
            "mode": "inline",
            "durability": "process",
            "log": {"directory": str(self.log_folder)},
            "health": {"endpoint": f"127.0.0.1:{self.health_port}"},
        }
        exporter = {"endpoint": self.backend, "retry": FAST_RETRY}
        return {
            "receivers": {"otlp": {"protocols": protocols}},
            "processors": dict(self.processors),
            "exporters": {"otlp": exporter | dict(self.exporter)},
            "service": service | dict(self.service),
        }

# What the instrumentation brings into the user's process. The time it takes is measured by
# benchmarks/import_time.py; here only what must never come along.
import subprocess
import sys

HEAVY = ("numpy", "grpc", "torch", "opentelemetry", "google.protobuf", "asyncio", "multiprocessing", "ssl")


def test_instrumentation_imports_nothing_heavy() -> None:
    script = "import sys, otel_llmprism.instrumentation.engine_run; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "otel_llmprism.native.ring_writer" in loaded
    assert loaded.isdisjoint(HEAVY)
    assert not {
        name for name in loaded if name.startswith(("otel_llmprism.exporters", "otel_llmprism.service"))
    }

# What an attached process runs, in a thread of its own: hooks go in asleep, the control socket opens, and
# whoever attached wakes it from there. Everything that goes wrong is written for them, nothing is raised.
import sys
from pathlib import Path

# The engine's name in a run that begins here, by what is imported, the most particular first.
_ENGINES = (
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("megatron.training", "megatron"),
    ("transformers", "transformers"),
    ("torch", "torch"),
)


def install_late(report: str) -> None:
    """Install what this process can use; `report` is a file that says "ok" or why not."""
    try:
        _install()
        said = "ok"
    except BaseException as error:  # noqa: BLE001  a stranger's process: it must not see any of this
        said = f"{type(error).__name__}: {error}"
    try:
        draft = Path(report + ".new")
        draft.write_text(said, encoding="utf-8")
        draft.replace(report)
    except OSError:
        return  # whoever attached has gone


def _install() -> None:
    from otel_llmprism.instrumentation import process_run  # noqa: PLC0415  errors belong into the report
    from otel_llmprism.instrumentation.control_server import open_control  # noqa: PLC0415
    from otel_llmprism.instrumentation.entry_points import (  # noqa: PLC0415
        FRAMEWORKS,
        install_frameworks,
        is_disabled,
    )
    from otel_llmprism.instrumentation.late_optimizers import wrap_present_optimizers  # noqa: PLC0415

    if is_disabled():
        raise RuntimeError("the process was started with llmprism disabled (OTEL_LLMPRISM_DISABLED or alike)")
    install_frameworks(FRAMEWORKS, is_asked_for=False)
    wrap_present_optimizers()
    name = next((name for module, name in _ENGINES if module in sys.modules), "python")
    version = getattr(sys.modules.get(name), "__version__", "")
    process_run.stand_by(name, str(version))
    if open_control() is None:
        raise RuntimeError("no place for its control socket; set OTEL_LLMPRISM_RUNTIME_DIR when starting it")

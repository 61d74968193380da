# OpenTelemetry's instrumentors: one for everything and one a framework, so that each can be disabled by
# its entry's name. Installing twice is harmless.
from collections.abc import Collection
from typing import Any, ClassVar

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from otel_llmprism.instrumentation.entry_points import FRAMEWORKS, install_frameworks, remove_frameworks


class _FrameworkInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # its module is untyped
    # Never instantiated itself: the base keeps one instance a class and its subclasses would inherit it.
    frameworks: ClassVar[tuple[str, ...]]

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return none: hooks wait for a framework and cost nothing where none comes."""
        return ()

    def _instrument(self, **_kwargs: Any) -> None:
        install_frameworks(self.frameworks)

    def _uninstrument(self, **_kwargs: Any) -> None:
        remove_frameworks(self.frameworks)


class LLMPrismInstrumentor(_FrameworkInstrumentor):
    """Everything we instrument; `OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=llmprism` turns all of it off."""

    frameworks = FRAMEWORKS


class VllmInstrumentor(_FrameworkInstrumentor):
    frameworks = ("vllm",)


class SglangInstrumentor(_FrameworkInstrumentor):
    frameworks = ("sglang",)


class TorchInstrumentor(_FrameworkInstrumentor):
    frameworks = ("torch", "collectives", "profilers")


class TransformersInstrumentor(_FrameworkInstrumentor):
    frameworks = ("transformers",)


class MegatronInstrumentor(_FrameworkInstrumentor):
    frameworks = ("megatron",)

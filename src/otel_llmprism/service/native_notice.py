# Says at the start of a service what is slower when libllmprism is not loaded. Nothing comes in; one log
# line goes out.
import logging

from otel_llmprism.native.library import load_library

_LOGGER = logging.getLogger(__name__)


def warn_of_twins() -> None:
    """Log once what runs in Python instead; silent when the native library is loaded."""
    if load_library() is None:
        _LOGGER.warning(
            "native library not loaded: scanning OTLP and reading ledgers run in Python, many times "
            "slower, with the same results; otel-llmprism doctor says the mend"
        )

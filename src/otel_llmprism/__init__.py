"""otel-llmprism: which request, step, rank, kernel or link made this slow."""

__version__ = "0.1.0"

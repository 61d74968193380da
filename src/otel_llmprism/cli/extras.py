# The optional packages, by the extra that brings them: a failed import comes in, the mend goes out.
# Must not import any of them.
import importlib.util

PACKAGES = {
    "processor": ("msgspec", "prometheus_client", "starlette", "uvicorn", "yaml", "zstandard"),
    "up": ("jinja2", "plotly"),
}


def describe_missing(command: str, error: ModuleNotFoundError) -> str | None:
    """Return what to install for `command`; None when no extra brings the module."""
    package = (error.name or "").partition(".")[0]
    if not any(package in packages for packages in PACKAGES.values()):
        return None
    extra = "processor" if command == "processor" else "up"
    return f"{command} needs the package {package}: pip install 'otel-llmprism[{extra}]'"


def list_missing(extra: str) -> list[str]:
    """Return the packages of one extra that are not installed."""
    return [name for name in PACKAGES[extra] if importlib.util.find_spec(name) is None]

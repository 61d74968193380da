# `${env:NAME}` and `${env:NAME:-default}` inside the texts of a configuration. The environment comes in;
# a missing variable without a default is an error, not an empty text.
import re
from collections.abc import Mapping

from otel_llmprism.config.errors import ConfigError

_REFERENCE = re.compile(r"\$\$|\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def expand_environment(value: object, environment: Mapping[str, str], path: str = "") -> object:
    """Return `value` with every reference in every text replaced; `$$` stands for one dollar sign."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: _resolve(match, environment, path), value)
    if isinstance(value, Mapping):
        return {
            key: expand_environment(item, environment, f"{path}.{key}" if path else str(key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [expand_environment(item, environment, f"{path}[{i}]") for i, item in enumerate(value)]
    return value


def _resolve(match: re.Match[str], environment: Mapping[str, str], path: str) -> str:
    inner = match[1]
    if inner is None:
        return "$"
    scheme, colon, rest = inner.partition(":")
    name, has_default, default = rest.partition(":-")
    if scheme != "env" or not colon or not _NAME.match(name):
        raise ConfigError(f"{path}: write ${{env:NAME}} or ${{env:NAME:-default}}, not {match[0][:60]}")
    if name in environment and (environment[name] or not has_default):
        return environment[name]
    if has_default:
        return default
    raise ConfigError(f"{path}: the environment has no {name}; set it or write ${{env:{name}:-default}}")

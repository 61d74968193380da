# A YAML file -> one mapping with the environment expanded. Nothing in the file is ever evaluated.
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from otel_llmprism.config.errors import ConfigError
from otel_llmprism.config.expand import expand_environment

MAX_FILE_BYTES = 1 << 20
MAX_VALUES = 100_000  # a few lines of aliases can stand for billions, or for themselves


def load_mapping(path: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what the file says; raises ConfigError with file, line and the mend."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check path and permissions") from error
    if len(text) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_FILE_BYTES} bytes: is it the right file?")
    try:
        # The loader is PyYAML's safe one; ours only refuses a key given twice.
        mapping = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a subclass of SafeLoader
    except yaml.MarkedYAMLError as error:
        at = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{at}: {error.problem or 'this is not YAML'}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if mapping is None:
        return {}
    if not isinstance(mapping, dict):
        raise ConfigError(f"{path}: expected sections such as `receivers:`, not a {type(mapping).__name__}")
    if _is_endless(mapping):
        raise ConfigError(
            f"{path} stands for more than {MAX_VALUES} values: write out what its aliases repeat"
        )
    try:
        return cast("dict[str, Any]", expand_environment(mapping, environment))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _is_endless(mapping: object) -> bool:
    """Tell whether a walk through it meets more than MAX_VALUES values; takes no longer than that."""
    waiting, count = [mapping], 0
    while waiting and count <= MAX_VALUES:
        value = waiting.pop()
        inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        waiting.extend(inner)
        count += 1
    return count > MAX_VALUES


class _StrictLoader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is given twice, which YAML would silently let win."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = str(key_node.value)
            if key in seen and key != "<<":
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)

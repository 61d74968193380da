# Models and the sentinel's state on disk: private, written whole or not at all, with version and checksum.
# What is damaged is refused with one line and counted, a full disk is counted; neither ends anything.
import hashlib
import json
import logging
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.sentinel import SENTINEL_STATE_ERRORS
from otel_llmprism.service.sentinel.model_book import StoredModel

_LOG = logging.getLogger(__name__)
_MAGIC = b"llmprism-sentinel1\n"
_STATE, _MODELS, _SUFFIX = "state", "models", ".model"
MAX_FILE_BYTES = 128 << 20
MAX_MODELS = 1000


class StateFiles:
    """One thread. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None, counters: Counters) -> None:
        self._folder = folder
        self._counters = counters

    def save_model(self, stored: StoredModel) -> None:
        head = {
            "engine": stored.engine_id,
            "peers": stored.peers,
            "trained_steps": stored.trained_steps,
            "model_bytes": len(stored.raw),
        }
        name = hashlib.sha256(stored.engine_id.encode("utf-8", "replace")).hexdigest()[:32]
        self._write(f"{_MODELS}/{name}{_SUFFIX}", head, stored.raw + stored.reference_raw)

    def load_models(self) -> Iterator[StoredModel]:
        """Yield the stored models, those written last at the end."""
        for path in self._list_models():
            found = self._read(path)
            if found is None:
                continue
            head, body = found
            size = head.get("model_bytes")
            if type(size) is int and 0 <= size <= len(body):
                yield StoredModel(
                    str(head.get("engine", "")),
                    str(head.get("peers", "")),
                    int(head.get("trained_steps", 0)),
                    body[:size],
                    body[size:],
                )

    def save_state(self, state: dict[str, Any]) -> None:
        try:
            raw = json.dumps(state, allow_nan=True).encode()
        except (TypeError, ValueError):
            self._count("save", "not_json")
            return
        self._write(_STATE, {}, raw)

    def load_state(self) -> dict[str, Any]:
        """Return the state; empty when there is none or it is damaged."""
        if self._folder is None:
            return {}
        found = self._read(self._folder / _STATE)
        if found is None:
            return {}
        try:
            state = json.loads(found[1])
        except (ValueError, RecursionError):
            state = None
        if isinstance(state, dict):
            return state
        self._refuse(self._folder / _STATE)
        return {}

    def _list_models(self) -> list[Path]:
        if self._folder is None:
            return []
        try:
            paths = sorted((self._folder / _MODELS).glob(f"*{_SUFFIX}"), key=lambda own: own.stat().st_mtime)
        except OSError:
            self._count("load", "unreadable")
            return []
        return paths[-MAX_MODELS:]

    def _write(self, name: str, head: dict[str, Any], body: bytes) -> None:
        if self._folder is None:
            return
        line = json.dumps({**head, "bytes": len(body), "crc": zlib.crc32(body)}).encode() + b"\n"
        path = self._folder / name
        draft = path.with_name(path.name + ".draft")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(draft, "wb", opener=_open_private) as file:
                file.write(_MAGIC + line + body)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError as error:
            self._count("save", error.strerror or "failed")
            draft.unlink(missing_ok=True)

    def _read(self, path: Path) -> tuple[dict[str, Any], bytes] | None:
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                self._refuse(path)
                return None
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError:
            self._count("load", "unreadable")
            return None
        line, _, body = raw.removeprefix(_MAGIC).partition(b"\n")
        try:
            head = json.loads(line)
        except (ValueError, RecursionError):
            head = None
        is_whole = (
            raw.startswith(_MAGIC)
            and isinstance(head, dict)
            and head.get("bytes") == len(body)
            and head.get("crc") == zlib.crc32(body)
        )
        if not is_whole:
            self._refuse(path)
            return None
        return head, body

    def _refuse(self, path: Path) -> None:
        self._count("load", "damaged")
        _LOG.warning("%s is damaged or of another version and is not used", path)

    def _count(self, operation: str, cause: str) -> None:
        self._counters.add(SENTINEL_STATE_ERRORS, operation=operation, cause=cause)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

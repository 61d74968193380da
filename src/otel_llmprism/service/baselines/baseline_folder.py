# A folder of stored models, one file a key, readable by its owner only, each replaced as a whole. What is
# damaged or of another version is said in one line and passed over.
import hashlib
import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from otel_llmprism.service.baselines.baseline_codec import (
    MAX_HEADER_BYTES,
    MAX_MODEL_BYTES,
    BaselineFileError,
    decode_baselines,
    encode_baseline,
)
from otel_llmprism.service.baselines.stored_baseline import BaselineKey, StoredBaseline

SUFFIX = ".baseline"
MAX_FILES = 4096
MAX_BUNDLE_BYTES = 16 * (MAX_HEADER_BYTES + MAX_MODEL_BYTES)


@dataclass(slots=True)
class BaselineFolder:
    """At `place`, a folder; reading also takes one file, with one model or several after another."""

    place: Path
    problems: list[str] = field(default_factory=list)

    def save(self, stored: StoredBaseline) -> Path:
        """Keep `stored` in the place of the one before; OSError leaves that one as it was."""
        self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.place / name_file(stored.key)
        write_whole(path, encode_baseline(stored))
        return path

    def read_all(self) -> list[StoredBaseline]:
        """Return all that can be read, by key; the later file of a key counts."""
        found = {stored.key: stored for path in self._list_files() for stored in self._read_file(path)}
        return [found[key] for key in sorted(found)]

    def read(self, key: BaselineKey) -> StoredBaseline | None:
        """Return the model of one key, None when there is none that can be read."""
        path = self.place / name_file(key)
        found = self._read_file(path) if path.exists() else []
        return next((stored for stored in found if stored.key == key), None)

    def _list_files(self) -> list[Path]:
        if not self.place.is_dir():
            return [self.place]
        return sorted(self.place.glob(f"*{SUFFIX}"))[:MAX_FILES]

    def _read_file(self, path: Path) -> list[StoredBaseline]:
        try:
            with path.open("rb") as file:
                return decode_baselines(file.read(MAX_BUNDLE_BYTES))
        except OSError as error:
            self.problems.append(f"{path}: {error.strerror or error}")
        except BaselineFileError as error:
            self.problems.append(f"{path}: {error}")
        return []


def name_file(key: BaselineKey) -> str:
    """Return a file name that tells people whose it is and differs for every key."""
    digest = hashlib.sha256(repr(key).encode()).hexdigest()[:12]
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", key.describe())[:60].strip("-.") or "baseline"
    return f"{slug}-{digest}{SUFFIX}"


def write_whole(path: Path, raw: bytes) -> None:
    """Write a file that is there as a whole or not at all, for its owner only."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

# How the ranks of one training agree on one run, though none of them started the others: through the
# store that torch.distributed already has. One call each, and never a wait for a key that is not there.
import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from otel_llmprism.native.run_folder import check_private

_PREFIX = "otel_llmprism/1/"
_MAX_BYTES = 4096  # of what a key may hold; nobody of ours writes more
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Store(Protocol):
    """What we need of a torch.distributed store."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes: ...

    def add(self, key: str, amount: int, /) -> int: ...

    def check(self, keys: list[str], /) -> bool: ...

    def get(self, key: str, /) -> bytes: ...

    def set(self, key: str, value: str, /) -> None: ...


class MeetingError(Exception):
    """The ranks cannot agree; the text says why."""


@dataclass(frozen=True, slots=True)
class Identity:
    engine_id: str
    run: str  # 32 hex digits


class Meeting:
    """One rank's part in finding its run."""

    def __init__(self, store: Store, node: str) -> None:
        self._store = store
        self._place_key = f"{_PREFIX}places/{node}"
        self._folder_key = f"{_PREFIX}folders/{node}"

    def agree_identity(self, proposed: Identity) -> Identity:
        """Return what the first rank that asked has proposed, the same for all."""
        text = json.dumps([proposed.engine_id, proposed.run])
        agreed = self._store.compare_set(f"{_PREFIX}identity", "", text)
        try:
            engine_id, run = json.loads(agreed[:_MAX_BYTES])
        except (ValueError, TypeError) as error:
            raise MeetingError("another program uses our keys in the store of torch.distributed") from error
        if not (isinstance(engine_id, str) and isinstance(run, str) and re.fullmatch("[0-9a-f]{32}", run)):
            raise MeetingError("another release of otel-llmprism is in this training: use one on all ranks")
        return Identity(engine_id, run)

    def is_first_here(self) -> bool:
        """Tell whether this rank is the first on its node, which makes the run's folder. Ask once."""
        return self._store.add(self._place_key, 1) == 1

    def publish_folder(self, folder: str) -> None:
        """Tell the node's other ranks where to join; empty: nowhere, since it could not be made."""
        self._store.set(self._folder_key, folder)

    def find_folder(self) -> str | None:
        """Return where to join, empty for nowhere; None as long as nobody has said so."""
        if not self._store.check([self._folder_key]):
            return None
        folder = self._store.get(self._folder_key)[:_MAX_BYTES].decode()
        if folder:
            check_private(Path(folder))
        return folder


def name_node() -> str:
    """Name what shares its memory-backed folders: this machine, or this container on it."""
    try:
        boot_id = _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        boot_id = ""
    memory = Path("/dev/shm")  # noqa: S108  only asked for its device number
    device = memory.stat().st_dev if memory.exists() else 0
    name = f"{os.uname().nodename}\0{boot_id}\0{device}\0{os.geteuid()}"
    return hashlib.sha256(name.encode()).hexdigest()[:16]

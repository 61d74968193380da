# Where a node keeps its ledgers and how much room they may take. Strings in, a frozen answer out.
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from otel_llmprism.config.errors import ConfigError

FOLDER_VARIABLE = "OTEL_LLMPRISM_LEDGER_DIR"
BYTES_VARIABLE = "OTEL_LLMPRISM_LEDGER_BYTES"
DEFAULT_MAX_BYTES = 1 << 30  # some six hours of 8 ranks at 100 steps/s


@dataclass(frozen=True, slots=True)
class LedgerFolderConfig:
    folder: Path
    max_bytes: int = DEFAULT_MAX_BYTES


def read_ledger_folder(environment: Mapping[str, str]) -> LedgerFolderConfig:
    """Return the folder that the environment names, else the user's state folder."""
    state = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME", "/")) / ".local" / "state")
    folder = environment.get(FOLDER_VARIABLE) or str(Path(state) / "otel-llmprism" / "ledger")
    text = environment.get(BYTES_VARIABLE, "").strip()
    if text and not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(f"{BYTES_VARIABLE}={text}: a whole number of bytes is needed")
    return LedgerFolderConfig(Path(folder), int(text) if text else DEFAULT_MAX_BYTES)

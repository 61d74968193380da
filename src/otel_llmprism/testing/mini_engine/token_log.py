# The engine's own book of what it did, as JSON lines: the oracle that records, ledger and spans are
# held against. Written by the engine from its plan, never from our records.
import json
from pathlib import Path
from typing import TextIO

from otel_llmprism.testing.mini_engine.scheduler import Plan


class TokenLog:
    """Buffered; `close` completes the file. Does nothing without a path."""

    def __init__(self, path: Path | None) -> None:
        self._file: TextIO | None = path.open("w", encoding="utf-8") if path else None

    def write_step(self, step_id: int, plan: Plan) -> None:
        if self._file is not None:
            tokens = {share.sequence.request_id: share.count for share in plan.shares}
            prefill = [share.sequence.request_id for share in plan.shares if share.is_prefill]
            preempted = [sequence.request_id for sequence in plan.preempted]
            self._write({"step": step_id, "tokens": tokens, "prefill": prefill, "preempted": preempted})

    def write_request(self, event: str, request_id: str, **numbers: int | str) -> None:
        if self._file is not None:
            self._write({"event": event, "request": request_id, **numbers})

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, line: dict[str, object]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")

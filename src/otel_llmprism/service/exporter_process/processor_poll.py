# The exporter's questions to the processor: what has my engine to do, and how it ended. One short HTTP
# exchange each, bounded in time and size; follows no redirect, since the token would go along.
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from otel_llmprism.config.errors import ConfigError

PATH = "/v1/control/requests"
TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 1 << 16
MAX_TOKEN_BYTES = 4096
MAX_STEPS = 1000  # of one request, whatever a processor says
MAX_ID_CHARS = 64
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class PollError(Exception):
    """The processor did not answer as one; the text says why and how to mend it."""


@dataclass(frozen=True, slots=True)
class DeepRequest:
    id: str
    steps: int


class ProcessorPoll:
    """Used by one thread."""

    def __init__(self, url: str, token_file: str, engine_id: str) -> None:
        parts = urlsplit(url)
        try:
            self._port = parts.port
        except ValueError as error:
            raise ConfigError(f"OTEL_LLMPRISM_PROCESSOR: {error}") from error
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.username:
            raise ConfigError("OTEL_LLMPRISM_PROCESSOR takes http://HOST:PORT or https://HOST:PORT")
        self._host = parts.hostname
        self._context = ssl.create_default_context() if parts.scheme == "https" else None
        self._base = parts.path.rstrip("/") + PATH
        self._token_file = Path(token_file) if token_file else None
        self._query = "?engine=" + quote(engine_id, safe="")

    @property
    def is_token_in_the_clear(self) -> bool:
        """Whether others on the network could read the token."""
        return self._token_file is not None and self._context is None and self._host not in _LOOPBACK

    def ask(self) -> list[DeepRequest]:
        """Return what the engine is to do; PollError when there is no answer."""
        answer = self._exchange("GET", self._base + self._query, None)
        found = answer.get("requests")
        return [read for entry in found if (read := _read(entry))] if isinstance(found, list) else []

    def settle(self, request_id: str, *, is_done: bool) -> None:
        """Tell how a request ended; PollError when nobody heard."""
        body = json.dumps({"outcome": "done" if is_done else "failed"}).encode()
        self._exchange("POST", f"{self._base}/{quote(request_id, safe='')}", body)

    def _exchange(self, method: str, target: str, body: bytes | None) -> dict[str, Any]:
        connection = self._connect()
        try:
            connection.request(method, target, body, self._build_headers())
            with connection.getresponse() as response:
                status, raw = response.status, response.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise PollError(str(error) or type(error).__name__) from error
        finally:
            connection.close()
        if status in {204, 404} and method == "POST":
            return {}  # 404: it forgot in the meantime
        if status != 200:
            raise PollError(f"it answers {status}; {_MENDS.get(status, 'check the address')}")
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise PollError("its answer is no JSON; check the address") from error
        return answer if isinstance(answer, dict) else {}

    def _connect(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=self._context)

    def _build_headers(self) -> Mapping[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token_file is not None:
            # Read each time: tokens are rotated under a running engine.
            with self._token_file.open(encoding="ascii") as file:
                headers["Authorization"] = "Bearer " + file.read(MAX_TOKEN_BYTES).strip()
        return headers


_MENDS = {
    401: "check OTEL_LLMPRISM_PROCESSOR_TOKEN_FILE",
    403: "give the processor service.control.token_file and us OTEL_LLMPRISM_PROCESSOR_TOKEN_FILE",
    404: "name the processor's health address in OTEL_LLMPRISM_PROCESSOR",
}


def _read(entry: object) -> DeepRequest | None:
    if not isinstance(entry, dict):
        return None
    request_id, steps = entry.get("id"), entry.get("steps")
    if not isinstance(request_id, str) or not 1 <= len(request_id) <= MAX_ID_CHARS:
        return None
    if not isinstance(steps, int) or isinstance(steps, bool) or not 1 <= steps <= MAX_STEPS:
        return None
    return DeepRequest(request_id, steps)

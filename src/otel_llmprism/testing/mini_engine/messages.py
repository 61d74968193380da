# What client and engine say to each other over a pipe, as JSON: submit, cancel, close; and the engine's
# answers. Nothing is pickled.
import json
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection


@dataclass(frozen=True, slots=True)
class Submit:
    request_id: str
    prompt: str
    max_tokens: int
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Cancel:
    request_id: str


@dataclass(frozen=True, slots=True)
class Close:
    """No more requests will come: finish what is there, then stop."""


@dataclass(frozen=True, slots=True)
class Done:
    request_id: str
    finish_reason: str
    output_tokens: int


Message = Submit | Cancel | Close | Done
_KINDS: dict[str, type[Submit | Cancel | Close | Done]] = {
    kind.__name__: kind for kind in (Submit, Cancel, Close, Done)
}


def send_message(pipe: Connection, message: Message) -> None:
    pipe.send_bytes(json.dumps([type(message).__name__, asdict(message)]).encode())


def receive_message(pipe: Connection) -> Message:
    """Block for the next message; EOFError when the other side is gone."""
    name, fields = json.loads(pipe.recv_bytes())
    return _KINDS[name](**fields)

# The engine's end of the pipe to its client: messages in without waiting longer than asked, answers out.
from collections.abc import Iterator
from multiprocessing.connection import Connection

from otel_llmprism.testing.mini_engine.messages import Close, Done, Message, receive_message, send_message


class FrontEnd:
    """`is_closed`: nothing more will be asked (the client said so or is gone)."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._is_connected = True
        self.is_closed = False

    def receive(self, wait_s: float) -> Iterator[Message]:
        """Yield what has come; wait up to `wait_s` for the first message."""
        try:
            while self._is_connected and self._pipe.poll(wait_s):
                message = receive_message(self._pipe)
                if isinstance(message, Close):
                    self.is_closed = True
                else:
                    yield message
                wait_s = 0.0
        except (EOFError, ConnectionResetError):
            self._is_connected, self.is_closed = False, True

    def answer(self, request_id: str, finish_reason: str, output_tokens: int) -> None:
        """Tell the client that a request has ended; a client that is gone misses it."""
        try:
            send_message(self._pipe, Done(request_id, finish_reason, output_tokens))
        except (BrokenPipeError, ConnectionResetError):
            self._is_connected, self.is_closed = False, True

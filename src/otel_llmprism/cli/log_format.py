# Our log on stderr: one line a record, key=value. What is logged must hold no secret; this file only
# keeps a record on one line.
import logging
import sys
import time

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/,+@%")


class KeyValueFormatter(logging.Formatter):
    """time=... level=... logger=... msg="..." and, if an exception came along, error="..."."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        pairs = [
            ("time", f"{seconds}.{int(record.msecs):03d}Z"),
            ("level", record.levelname.lower()),
            ("logger", record.name),
            ("msg", record.getMessage()),
        ]
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            pairs.append(("error", f"{type(error).__name__}: {error}"))
        return " ".join(f"{key}={quote_value(value)}" for key, value in pairs)


def quote_value(text: str) -> str:
    """Return the text as it is if it is one plain word, else quoted with line ends escaped."""
    if text and all(c in _PLAIN for c in text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def configure_logging(*, is_verbose: bool) -> None:
    """Send our records, and warnings of libraries, to stderr."""
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(KeyValueFormatter())
    root = logging.getLogger()
    root.handlers[:] = [stream]
    root.setLevel(logging.WARNING)
    logging.getLogger("otel_llmprism").setLevel(logging.DEBUG if is_verbose else logging.INFO)

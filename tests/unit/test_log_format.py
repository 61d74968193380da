# One line a record, whatever is in it.
import logging

import pytest

from otel_llmprism.cli.log_format import KeyValueFormatter, quote_value


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("plain", "plain"),
        ("127.0.0.1:4317", "127.0.0.1:4317"),
        ("", '""'),
        ("two words", '"two words"'),
        ('say "x"', '"say \\"x\\""'),
        ("a\nb\r", '"a\\nb\\r"'),
        ("key=value", '"key=value"'),
    ],
)
def test_values_are_quoted_only_when_they_must_be(text: str, quoted: str) -> None:
    assert quote_value(text) == quoted


def test_record_with_an_exception_stays_on_one_line() -> None:
    error = OSError("disk\nfull")
    caught = (OSError, error, None)
    record = logging.LogRecord("ours", logging.WARNING, "f.py", 1, "cannot %s", ("write",), caught)
    record.created, record.msecs = 0.25, 250
    line = KeyValueFormatter().format(record)
    assert line.startswith("time=1970-01-01T00:00:00.250Z level=warning logger=ours ")
    assert line.endswith('msg="cannot write" error="OSError: disk\\nfull"')

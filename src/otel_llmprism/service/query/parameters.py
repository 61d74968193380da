# Query strings -> bounded, checked values. Everything a client sends passes here; what is wrong is
# refused with the name of the parameter and the mend.
import difflib
import json
from collections.abc import Iterable, Sequence
from typing import Protocol

from otel_llmprism.exporters.store.searchable import is_content
from otel_llmprism.exporters.store.span_rows import MAX_INT64
from otel_llmprism.exporters.store.stored import TraceQuery
from otel_llmprism.exporters.store.tag_match import KIND_NAMES
from otel_llmprism.service.query.durations import parse_duration_ns
from otel_llmprism.service.query.errors import BadParameterError

MAX_TEXT = 1024
MAX_TAGS = 16
MAX_TRACES = 1500
MAX_TRACE_IDS = 100
DEFAULT_TRACES = 20
JAEGER_DEFAULT_TRACES = 100
DEFAULT_LOOKBACK_NS = 2 * 86400 * 10**9
_US = 1000


class QueryString(Protocol):
    """The part of starlette's QueryParams in use."""

    def get(self, key: str, default: str) -> str: ...

    def getlist(self, key: str) -> list[str]: ...


def read_text(params: QueryString, name: str) -> str | None:
    """Return the parameter, None when absent or empty."""
    text = params.get(name, "")
    if len(text) > MAX_TEXT:
        raise BadParameterError(name, "too long", f"send at most {MAX_TEXT} characters")
    return text or None


def refuse_unknown(params: Iterable[str], known: set[str]) -> None:
    """Refuse a parameter that is not known here, so that a typo is noticed."""
    for name in params:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            allowed = ", ".join(sorted(known)) or "none"
            hint = f"did you mean {near[0]!r}?" if near else f"known here: {allowed}"
            raise BadParameterError(name[:64], "unknown", hint)


def read_count(params: QueryString, name: str, default: int, most: int) -> int:
    """Return a whole number from 1 to `most`."""
    text = read_text(params, name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:20]) <= most:
        raise BadParameterError(name, "not in range", f"send a whole number from 1 to {most}")
    return int(text)


def read_trace_query(
    params: QueryString, now_ns: int, *, default_limit: int, with_content: bool
) -> TraceQuery:
    """Return the search that `params` describe, in Jaeger's words, which are ours too."""
    start_ns, end_ns = read_window(params, now_ns)
    least = read_duration_ns(params, "minDuration", 0)
    most = read_duration_ns(params, "maxDuration", MAX_INT64)
    if least > most:
        raise BadParameterError("maxDuration", "below minDuration", "swap the two, or leave one out")
    return TraceQuery(
        service=read_text(params, "service"),
        operation=read_text(params, "operation"),
        kind=read_kind(params, "spanKind"),
        tags=read_tags(params, with_content=with_content),
        start_ns=start_ns,
        end_ns=end_ns,
        min_duration_ns=least,
        max_duration_ns=most,
        limit=read_count(params, "limit", default_limit, MAX_TRACES),
    )


def read_window(params: QueryString, now_ns: int) -> tuple[int, int]:
    """Return the times asked for: `start` and `end` in microseconds, or `lookback` from the end."""
    end_ns = read_time_ns(params, "end", now_ns)
    lookback = params.get("lookback", "")
    try:
        lookback_ns = parse_duration_ns(lookback)
    except ValueError:  # Jaeger's page sends "custom" beside start and end
        lookback_ns = DEFAULT_LOOKBACK_NS
    return read_time_ns(params, "start", max(0, end_ns - lookback_ns)), end_ns


def read_time_ns(params: QueryString, name: str, default_ns: int, unit_ns: int = _US) -> int:
    text = read_text(params, name)
    if text is None:
        return default_ns
    try:
        value = int(text) if text.isascii() and len(text) <= 20 else -1
    except ValueError:
        value = -1
    if value < 0:
        unit = "microseconds" if unit_ns == _US else "milliseconds"
        raise BadParameterError(name, "no time", f"send {unit} since 1970 as a whole number")
    return min(value * unit_ns, MAX_INT64)


def read_duration_ns(params: QueryString, name: str, default_ns: int) -> int:
    text = read_text(params, name)
    if text is None:
        return default_ns
    try:
        return min(parse_duration_ns(text), MAX_INT64)
    except ValueError:
        raise BadParameterError(name, "no duration", "write for example 1.5s, 250ms or 100us") from None


def read_kind(params: QueryString, name: str) -> int | None:
    text = read_text(params, name)
    if text is None:
        return None
    if text not in KIND_NAMES[1:]:
        raise BadParameterError(name, "no span kind", f"send one of {', '.join(KIND_NAMES[1:])}")
    return KIND_NAMES.index(text)


def read_tags(params: QueryString, *, with_content: bool) -> dict[str, str]:
    """Return `tag=key:value` (any number) and `tags={...}` as one mapping; content is refused."""
    tags: dict[str, str] = {}
    for text in params.getlist("tag")[: MAX_TAGS + 1]:
        key, separator, value = text.partition(":")
        if not separator or not key:
            raise BadParameterError("tag", "no key:value", "write for example tag=llmprism.step.kind:decode")
        tags[key] = value
    for text in params.getlist("tags")[:MAX_TAGS]:
        tags.update(_read_json_tags(text))
    if len(tags) > MAX_TAGS or any(len(key) + len(value) > MAX_TEXT for key, value in tags.items()):
        raise BadParameterError(
            "tags", "too many or too long", f"send at most {MAX_TAGS} tags of {MAX_TEXT} characters"
        )
    content = [key for key in tags if is_content(key)]
    if content and not with_content:
        raise BadParameterError(
            "tags",
            f"{content[0]!r} holds content",
            "set index_content in the store's configuration to search it",
        )
    return tags


def read_trace_ids(texts: Sequence[str]) -> list[bytes]:
    """Return trace ids from hexadecimal of any length up to 32 digits, as Jaeger's clients shorten them."""
    if len(texts) > MAX_TRACE_IDS:
        raise BadParameterError("traceID", "too many", f"send at most {MAX_TRACE_IDS}")
    return [read_id("traceID", text, 16) for text in texts]


def read_id(name: str, text: str, size: int) -> bytes:
    """Return an id of `size` bytes from hexadecimal; leading zeros may be missing."""
    if not 1 <= len(text) <= 2 * size or not set(text) <= set("0123456789abcdefABCDEF"):
        raise BadParameterError(name, "no id", f"send up to {2 * size} hexadecimal digits")
    return bytes.fromhex(text.zfill(2 * size))


def _read_json_tags(text: str) -> dict[str, str]:
    hint = 'send a JSON object of texts, for example {"llmprism.step.kind":"decode"}'
    if len(text) > MAX_TAGS * MAX_TEXT:
        raise BadParameterError("tags", "too long", hint)
    try:
        tags = json.loads(text)
        str(tags).encode()  # half a surrogate pair is text for JSON, but for nobody else
    except (ValueError, RecursionError):
        raise BadParameterError("tags", "no JSON", hint) from None
    if not isinstance(tags, dict) or not all(isinstance(value, str) for value in tags.values()):
        raise BadParameterError("tags", "no object of texts", hint)
    return tags

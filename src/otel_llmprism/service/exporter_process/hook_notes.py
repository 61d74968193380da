# Hooks in the engine that switched themselves off: one line each, since from there on something is
# missing that the user may be waiting for.
import logging

from otel_llmprism.native.ring_records import HookOff
from otel_llmprism.receivers.ring_slots import Rows

_WHY = {
    HookOff.BUDGET: "its slowest percent took up to {p99_us:.0f} us, above its budget of {budget_us:.0f} us",
    HookOff.FAILED: "it failed again and again",
    HookOff.ABSENT: "this version of the engine has no place for it",
}
_log = logging.getLogger("otel_llmprism")


def tell_hooks_off(rows: Rows) -> None:
    """Log each HOOK_OFF record."""
    for row in rows:
        why = _WHY.get(int(row["reason"]), "no reason was given")  # type: ignore[call-overload]
        text = why.format(p99_us=int(row["p99_ns"]) / 1e3, budget_us=int(row["budget_ns"]) / 1e3)
        name = bytes(row["hook"]).rstrip(b"\0").decode("utf-8", "replace")
        _log.warning("llmprism: the hook %r switched itself off: %s", name, text)

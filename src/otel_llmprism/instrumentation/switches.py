# What the environment asks of us inside the user's process. Strings in, a frozen answer out.
from collections.abc import Mapping
from dataclasses import dataclass

from otel_llmprism.native.ring_records import Mode

STEPS = ("sample", "all", "none")
HOOKS = ("step", "request", "rank")
_MODES = {"off": Mode.OFF, "sentinel": Mode.SENTINEL, "deep": Mode.DEEP}


@dataclass(frozen=True, slots=True)
class Switches:
    is_disabled: bool
    mode: Mode
    steps: str  # one of STEPS
    reads_context: bool  # whether a caller's W3C context is honoured
    hooks: frozenset[str] = frozenset(HOOKS)  # those that may record

    @property
    def is_recording(self) -> bool:
        return not self.is_disabled and self.mode is not Mode.OFF


def read_switches(environment: Mapping[str, str], default_mode: Mode = Mode.SENTINEL) -> Switches:
    """Read OTEL_LLMPRISM_* and the standard switches; unknown words mean the default."""
    steps = _read(environment, "OTEL_LLMPRISM_STEPS")
    propagators = _read(environment, "OTEL_PROPAGATORS") or "tracecontext"
    return Switches(
        is_disabled=is_switched_off(environment),
        mode=_MODES.get(_read(environment, "OTEL_LLMPRISM_MODE"), default_mode),
        steps=steps if steps in STEPS else STEPS[0],
        reads_context="tracecontext" in [name.strip() for name in propagators.split(",")],
        hooks=_read_hooks(_read(environment, "OTEL_LLMPRISM_HOOKS")),
    )


def is_switched_off(environment: Mapping[str, str]) -> bool:
    """Tell whether nothing of ours may run, which is more than asleep."""
    return "true" in (_read(environment, "OTEL_LLMPRISM_DISABLED"), _read(environment, "OTEL_SDK_DISABLED"))


def _read_hooks(text: str) -> frozenset[str]:
    """`step,request` means these only; `-rank` all but this one; names of other releases are passed over."""
    words = [word.strip() for word in text.split(",")]
    asked = {word for word in words if word in HOOKS} or set(HOOKS)
    return frozenset(asked - {word.removeprefix("-") for word in words if word.startswith("-")})


def _read(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name, "").strip().lower()

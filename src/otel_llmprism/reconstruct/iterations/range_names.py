# Names of ranges and calls: what to fold so that one place in a program has one name, which ones say by
# themselves that they are an iteration, and of which kind. Words of frameworks stand here and only here.
import re

import numpy as np

from otel_llmprism.model.steps import U8, U32
from otel_llmprism.native.ring_codes import StepKind

# Numbers count calls, tokens or addresses and are folded. Not those behind a dot: `layers.3` is a place.
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|(?<![.0-9])[0-9]+(?![.0-9]*[.][A-Za-z_])")
_ITERATION = re.compile(
    r"ProfilerStep#\d+|execute_\d+_context_\d+.*|step\[\w+.*\]|llmprism\.step.*|execute_model\b.*"
    r"|(train|training)[_ ]?(step|iteration|batch)\b.*|iteration[ _#:]*\d*",
    re.IGNORECASE,
)
# Operators, calls of libraries and of the language: each layer makes them, none begins an iteration.
_INNER = re.compile(
    r"(aten|prims?|c10d?|autograd|torch\w*|FSDP|vllm|sgl\w*|_C\w*|nccl|flash_attn|triton)::.*"
    r"|(nccl|cuda|hip|cu)[A-Z:_].*|<.*|(torch|triton|numpy)/.*|.*, (op_id|seq) = \d.*"
)
_CONTEXT = re.compile(r"execute_\d+_context_(\d+).*?generation_(\d+)")
_KINDS = (
    (StepKind.MIXED, re.compile(r"\bmixed\b|forward_mixed|step\[MIXED", re.IGNORECASE)),
    (StepKind.PREFILL, re.compile(r"prefill|forward_extend|step\[EXTEND|context_phase", re.IGNORECASE)),
    (StepKind.DECODE, re.compile(r"decode(?!r|\w*_?token)|generation_phase", re.IGNORECASE)),
    (
        StepKind.TRAIN,
        re.compile(r"backward\b|Optimizer\.step|optimizer_step|autograd::engine", re.IGNORECASE),
    ),
)


def fold_names(name: U32, names: tuple[str, ...]) -> tuple[U32, tuple[str, ...]]:
    """Return the codes and names with numbers that only count taken out."""
    places: dict[str, int] = {}
    folded = [places.setdefault(_NUMBER.sub("#", text), len(places)) for text in names]
    return np.array(folded, np.uint32)[name] if len(names) else name, tuple(places)


def is_iteration_name(text: str) -> bool:
    """Tell whether a framework names its iterations so."""
    return _ITERATION.fullmatch(text) is not None


def is_inner_name(text: str) -> bool:
    """Tell whether a name is that of an operator or a library's call."""
    return _INNER.fullmatch(text) is not None


def read_kind(text: str) -> StepKind:
    """Return the kind a name tells of, UNKNOWN for most."""
    if context := _CONTEXT.search(text):
        prefill, decode = int(context[1]) > 0, int(context[2]) > 0
        return StepKind.MIXED if prefill and decode else StepKind.PREFILL if prefill else StepKind.DECODE
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), StepKind.UNKNOWN)


def read_kinds(names: tuple[str, ...]) -> U8:
    """Return each name's kind."""
    return np.array([read_kind(text) for text in names], np.uint8)

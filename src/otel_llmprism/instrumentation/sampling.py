# The standard samplers by name (OTEL_TRACES_SAMPLER), for request spans without an SDK.
import math
from collections.abc import Callable, Mapping

from otel_llmprism.instrumentation.trace_context import Caller

Sampler = Callable[[Caller | None, bytes], bool]
_DEFAULT = "parentbased_always_on"


def build_sampler(environment: Mapping[str, str]) -> Sampler:
    """Return the sampler that the environment names; an unknown name gives the default."""
    name = environment.get("OTEL_TRACES_SAMPLER", "").strip().lower() or _DEFAULT
    is_parent_based = name.startswith("parentbased_")
    root = name.removeprefix("parentbased_")
    if root not in {"always_on", "always_off", "traceidratio"}:
        is_parent_based, root = True, "always_on"
    share = {"always_on": 1.0, "always_off": 0.0}.get(root, _read_share(environment))
    bound = round(share * 2.0**64)

    def is_sampled(caller: Caller | None, trace_id: bytes) -> bool:
        if caller is not None and is_parent_based:
            return caller.is_sampled
        # The SDKs compare the last 8 bytes, so one ratio gives one decision everywhere.
        return int.from_bytes(trace_id[8:], "big") < bound

    return is_sampled


def _read_share(environment: Mapping[str, str]) -> float:
    try:
        share = float(environment.get("OTEL_TRACES_SAMPLER_ARG", "") or 1.0)
    except ValueError:
        return 1.0
    return share if math.isfinite(share) and 0 <= share <= 1 else 1.0

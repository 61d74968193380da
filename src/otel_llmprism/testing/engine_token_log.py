# A book of what vLLM's scheduler did, as JSON lines, written inside vLLM's own process: the oracle that
# records, ledger and spans are held against. A vLLM plugin; shares no code with the instrumentation.
import json
import os
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

PATH_VARIABLE = "ENGINE_TOKEN_LOG"  # a file; each process that schedules appends its pid to the name

Write = Callable[[dict[str, Any]], None]

_logged: list[type] = []


def install() -> None:
    """Entry of `vllm.general_plugins`: log every schedule call, preemption and end of a request."""
    path = os.environ.get(PATH_VARIABLE)
    if not path:
        return
    scheduler = import_module("vllm.v1.core.sched.scheduler").Scheduler
    if scheduler in _logged:
        return
    _logged.append(scheduler)
    write = build_writer(path)
    for name, wrap in WRAPS.items():
        setattr(scheduler, name, wrap(getattr(scheduler, name), write))


def build_writer(path: str) -> Write:
    """Return a function that writes one line at once, into a file of the process that calls it."""
    files: dict[int, int] = {}  # descriptors, which only the end of the process closes

    def write(line: dict[str, Any]) -> None:
        pid = os.getpid()
        if pid not in files:
            files[pid] = os.open(f"{path}.{pid}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(files[pid], json.dumps(line).encode() + b"\n")

    return write


def wrap_schedule(original: Callable[..., Any], write: Write) -> Callable[..., Any]:
    def schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        began_ns = time.monotonic_ns()
        output = original(self, *args, **kwargs)
        write(describe_schedule(output, began_ns))
        return output

    schedule.__wrapped__ = original  # type: ignore[attr-defined]  # so that signatures are seen through it
    return schedule


def describe_schedule(output: Any, began_ns: int) -> dict[str, Any]:
    """Return what was scheduled; `starts`: tokens that need no computing, of those that (re)start."""
    starts = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    cached = output.scheduled_cached_reqs
    resumed = set(getattr(cached, "resumed_req_ids", ()))
    computed = zip(cached.req_ids, cached.num_computed_tokens, strict=True)
    starts |= {request: count for request, count in computed if request in resumed}
    return {
        "event": "schedule",
        "began_ns": began_ns,
        "tokens": dict(output.num_scheduled_tokens),
        "total": output.total_num_scheduled_tokens,
        "starts": starts,
        "new": [new.req_id for new in output.scheduled_new_reqs],
        "finished": sorted(output.finished_req_ids),
    }


def wrap_preempt(original: Callable[..., Any], write: Write) -> Callable[..., Any]:
    def preempt(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        lost = request.num_computed_tokens
        result = original(self, request, *args, **kwargs)
        write({"event": "preempted", "request": request.request_id, "lost": lost})
        return result

    preempt.__wrapped__ = original  # type: ignore[attr-defined]
    return preempt


def wrap_free(original: Callable[..., Any], write: Write) -> Callable[..., Any]:
    def free(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        line = describe_end(request)
        result = original(self, request, *args, **kwargs)
        write(line)
        return result

    free.__wrapped__ = original  # type: ignore[attr-defined]
    return free


def describe_end(request: Any) -> dict[str, Any]:
    return {
        "event": "ended",
        "request": request.request_id,
        "status": request.status.name,
        "prompt": request.num_prompt_tokens,
        "generated": request.num_output_tokens,
        "preemptions": request.num_preemptions,
    }


WRAPS: Mapping[str, Callable[[Callable[..., Any], Write], Callable[..., Any]]] = {
    "schedule": wrap_schedule,
    "_preempt_request": wrap_preempt,
    "_free_request": wrap_free,
}

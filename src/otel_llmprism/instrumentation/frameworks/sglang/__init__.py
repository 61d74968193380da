# SGLang: which of its callables we wrap, and with what. Called by the entry points; imports no SGLang, since
# hooks wait until SGLang's own modules are imported.
from otel_llmprism.instrumentation.frameworks.sglang import front_end, launch, scheduler, targets
from otel_llmprism.instrumentation.hooking import Target, Wrap, install_hooks, remove_hooks

HOOKS: tuple[tuple[Target, Wrap], ...] = (
    (targets.LAUNCH, launch.wrap_launch_method),
    (targets.LAUNCH_BEFORE_ENGINE, launch.wrap_launch_function),
    (targets.GENERATE, front_end.wrap_generate),
    (targets.SEND, front_end.wrap_send),
    (targets.SEND_BATCH, front_end.wrap_send),
    (targets.OUTPUT, front_end.wrap_output),
    (targets.OUTPUT_ABORT, front_end.wrap_output_abort),
    (targets.ACCEPT, scheduler.wrap_accept),
    (targets.ACCEPT_EMBEDDING, scheduler.wrap_accept),
    (targets.QUEUE, scheduler.wrap_queue),
    (targets.QUEUE_LIMIT, scheduler.wrap_queue_limit),
    (targets.ABORT, scheduler.wrap_abort),
    (targets.PLAN, scheduler.wrap_plan),
    (targets.PLAN_PREFILL, scheduler.wrap_plan),
    (targets.PLAN_DECODE, scheduler.wrap_plan),
    (targets.RUN, scheduler.wrap_run),
    (targets.RESULT, scheduler.wrap_result),
    (targets.TRANSFERRED, scheduler.wrap_transferred),
    (targets.FORWARD, scheduler.wrap_forward),
)
TARGETS = tuple(target for target, _ in HOOKS)


def install() -> None:
    """Wait for SGLang and hook it."""
    install_hooks("sglang", HOOKS)


def remove() -> None:
    """Put back what was there."""
    remove_hooks("sglang")

# vLLM's V1 engine: which of its callables we wrap, and with what. Called by the entry points; imports no
# vLLM, since hooks wait until vLLM's own modules are imported.
from otel_llmprism.instrumentation.frameworks.vllm import (
    core,
    engine_core,
    front_end,
    launch,
    targets,
    worker,
)
from otel_llmprism.instrumentation.hooking import Target, Wrap, install_hooks, remove_hooks

HOOKS: tuple[tuple[Target, Wrap], ...] = (
    (targets.LAUNCH, launch.wrap_launch),
    (targets.LAUNCH_IN_CLIENT, launch.wrap_launch),
    (targets.LAUNCH_IN_SERVE, launch.wrap_launch),
    (targets.BUILD_APP, front_end.wrap_build_app),
    (targets.BUILD_APP_COPY, front_end.wrap_build_app),
    (targets.BUILD_APP_BEFORE_0_30, front_end.wrap_build_app),
    (targets.FRONT_ADD, front_end.wrap_add_request),
    (targets.FRONT_OUTPUTS, front_end.wrap_process_outputs),
    (targets.FRONT_ABORT, front_end.wrap_abort_requests),
    (targets.CORE_INIT, engine_core.wrap_init),
    (targets.CORE_SHUTDOWN, engine_core.wrap_shutdown),
    (targets.CORE_DUMMY, engine_core.wrap_dummy_batch),
    (targets.CORE_SLEEP, engine_core.wrap_sleep),
    (targets.CORE_WAKE_UP, engine_core.wrap_wake_up),
    (targets.CORE_PAUSE, engine_core.wrap_pause),
    (targets.CORE_PROC_PAUSE, engine_core.wrap_pause),
    (targets.CORE_RESUME, engine_core.wrap_resume),
    (targets.CORE_RPC, engine_core.wrap_collective_rpc),
    (targets.ADD, core.wrap_add_request),
    (targets.SCHEDULE, core.wrap_schedule),
    (targets.OUTPUT, core.wrap_update_from_output),
    (targets.PREEMPT, core.wrap_preempt_request),
    (targets.FREE, core.wrap_free_request),
    (targets.EXECUTE, worker.wrap_execute_model),
    (targets.SAMPLE, worker.wrap_sample_tokens),
)


def install() -> None:
    """Wait for vLLM and hook it."""
    install_hooks("vllm", HOOKS)


def remove() -> None:
    """Put back what was there."""
    remove_hooks("vllm")

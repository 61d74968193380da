# The places in vLLM that we wrap, versions 0.11 to 0.33. Names only; what a wrapper relies on is listed, and
# a place that some supported version lacks is optional.
from otel_llmprism.instrumentation.hooking import Target

_UTILS = "vllm.v1.engine.utils"
_CORE = "vllm.v1.engine.core"
_OUTPUT = "vllm.v1.engine.output_processor"
_SCHEDULER = "vllm.v1.core.sched.scheduler"
_WORKER = "vllm.v1.worker.gpu_worker"
_LAUNCH = "launch_core_engines"
_LAUNCHED = ("vllm_config", "executor_class", "log_stats")

LAUNCH = Target(_UTILS, _LAUNCH, _LAUNCHED)
# The same function, under the names that its callers copied before we came.
LAUNCH_IN_CLIENT = Target("vllm.v1.engine.core_client", _LAUNCH, _LAUNCHED, is_optional=True)
LAUNCH_IN_SERVE = Target("vllm.entrypoints.cli.serve", _LAUNCH, _LAUNCHED, is_optional=True)

BUILD_APP = Target("vllm.entrypoints.launchers.app", "build_app", ("args",), is_optional=True)
BUILD_APP_COPY = Target(
    "vllm.entrypoints.launchers.api_server.entry", "build_app", ("args",), is_optional=True
)
BUILD_APP_BEFORE_0_30 = Target("vllm.entrypoints.openai.api_server", "build_app", ("args",), is_optional=True)
FRONT_ADD = Target(
    _OUTPUT,
    "OutputProcessor.add_request",
    ("request", "prompt", "parent_req", "request_index", "queue"),
)
FRONT_OUTPUTS = Target(_OUTPUT, "OutputProcessor.process_outputs", ("engine_core_outputs",))
FRONT_ABORT = Target(_OUTPUT, "OutputProcessor.abort_requests", ("request_ids",))

CORE_INIT = Target(_CORE, "EngineCore.__init__", ("vllm_config", "executor_class", "log_stats"))
CORE_SHUTDOWN = Target(_CORE, "EngineCore.shutdown")
CORE_DUMMY = Target(_CORE, "EngineCore.execute_dummy_batch")
CORE_SLEEP = Target(_CORE, "EngineCore.sleep", ("level",))
CORE_WAKE_UP = Target(_CORE, "EngineCore.wake_up", ("tags",))
CORE_PAUSE = Target(_CORE, "EngineCore.pause_scheduler", is_optional=True)  # since 0.17
CORE_PROC_PAUSE = Target(_CORE, "EngineCoreProc.pause_scheduler", is_optional=True)  # since 0.17
CORE_RESUME = Target(_CORE, "EngineCore.resume_scheduler", is_optional=True)  # since 0.17
CORE_RPC = Target(_CORE, "EngineCore.collective_rpc", ("method",))

ADD = Target(_SCHEDULER, "Scheduler.add_request", ("request",))
SCHEDULE = Target(_SCHEDULER, "Scheduler.schedule")
OUTPUT = Target(_SCHEDULER, "Scheduler.update_from_output", ("scheduler_output", "model_runner_output"))
PREEMPT = Target(_SCHEDULER, "Scheduler._preempt_request", ("request",), is_optional=True)  # since 0.12
FREE = Target(_SCHEDULER, "Scheduler._free_request", ("request",))

EXECUTE = Target(_WORKER, "Worker.execute_model", ("scheduler_output",))
SAMPLE = Target(_WORKER, "Worker.sample_tokens", ("grammar_output",), is_optional=True)  # since 0.12

# The places in SGLang that we wrap, versions 0.5.5 to 0.5.23. Names only; what a wrapper relies on is listed,
# and a test reads the published sources for it.
from otel_llmprism.instrumentation.hooking import Target

_ENGINE = "sglang.srt.entrypoints.engine"
_SCHEDULER = "sglang.srt.managers.scheduler"
_TOKENIZER = "sglang.srt.managers.tokenizer_manager"
_PREFILL = "sglang.srt.disaggregation.prefill"
_DECODE = "sglang.srt.disaggregation.decode"

LAUNCH = Target(_ENGINE, "Engine._launch_subprocesses", ("server_args",), is_optional=True)
LAUNCH_BEFORE_ENGINE = Target(_ENGINE, "_launch_subprocesses", ("server_args",), is_optional=True)

GENERATE = Target(_TOKENIZER, "TokenizerManager.generate_request", ("obj", "request"))
SEND = Target(_TOKENIZER, "TokenizerManager._send_one_request")
SEND_BATCH = Target(_TOKENIZER, "TokenizerManager._send_batch_request")
OUTPUT = Target(_TOKENIZER, "TokenizerManager._handle_batch_output", ("recv_obj",))
OUTPUT_ABORT = Target(_TOKENIZER, "TokenizerManager._handle_abort_req", ("recv_obj",))

ACCEPT = Target(_SCHEDULER, "Scheduler.handle_generate_request", ("recv_req",))
ACCEPT_EMBEDDING = Target(_SCHEDULER, "Scheduler.handle_embedding_request", ("recv_req",))
QUEUE = Target(_SCHEDULER, "Scheduler._add_request_to_queue", ("req", "is_retracted"))
QUEUE_LIMIT = Target(_SCHEDULER, "Scheduler._abort_on_queued_limit", ("recv_req",))
ABORT = Target(_SCHEDULER, "Scheduler.abort_request", ("recv_req",))
PLAN = Target(_SCHEDULER, "Scheduler.get_next_batch_to_run")
PLAN_PREFILL = Target(
    _PREFILL, "SchedulerDisaggregationPrefillMixin.get_next_disagg_prefill_batch_to_run", is_optional=True
)
PLAN_DECODE = Target(_DECODE, "SchedulerDisaggregationDecodeMixin.get_next_disagg_decode_batch_to_run")
TRANSFERRED = Target(
    _PREFILL,
    "SchedulerDisaggregationPrefillMixin.process_disagg_prefill_inflight_queue",
    ("rids_to_check",),
)
RUN = Target(_SCHEDULER, "Scheduler.run_batch", ("batch",))
RESULT = Target(_SCHEDULER, "Scheduler.process_batch_result", ("batch", "result"))
FORWARD = Target("sglang.srt.managers.tp_worker", "TpModelWorker.forward_batch_generation")

# The layouts of ring_records.py as numpy reads them: lists for np.dtype(), one per kind, 128 bytes each.
# numpy itself stays outside; ring_records.py writes these bytes, a test holds the two together.
from otel_llmprism.native.ring_records import INLINE_ID_BYTES, MEMBERS_PER_SLOT, TEXT_BYTES, Kind

_HEAD = [("slot_kind", "<u2"), ("entries", "<u2"), ("reserved", "<u4")]
_MEMBER = [("handle", "<u8"), ("slot", "<u4"), ("word", "<u4")]
_STEP_COUNTS = ("requests", "prefill_tokens", "decode_tokens", "waiting", "running", "preemptions")
_RANK_IDS = ("rank", "tp", "pp", "dp", "cp", "ep")
_PHASE_TIMES = ("forward_ns", "backward_ns", "optimizer_ns", "data_ns")
_TOTALS = ("prompt_tokens", "output_tokens", "cached_tokens", "steps", "preemptions")

RING_DTYPES: dict[Kind, list[tuple[object, ...]]] = {
    Kind.STEP_SCHEDULED: [
        *_HEAD,
        *((name, "<u8") for name in ("step", "schedule_start_ns", "schedule_end_ns")),
        ("kept_probability", "<f8"),
        ("kv_tokens", "<u8"),
        *((name, "<u4") for name in _STEP_COUNTS),
        ("kv_usage", "<f4"),
        *((name, "u1") for name in ("kind", "kept", "graph_mode", "mode")),
        ("lane", "<u2"),
        ("member_count", "<u2"),
        ("unused", "V44"),
    ],
    Kind.STEP_MEMBERS: [*_HEAD, ("step", "<u8"), ("members", _MEMBER, (MEMBERS_PER_SLOT,))],
    Kind.STEP_OUTPUT: [
        *_HEAD,
        *(
            (name, "<u8")
            for name in ("step", "output_ready_ns", "execute_ns", "sample_ns", "output_ns", "gap_ns")
        ),
        ("unused", "V72"),
    ],
    Kind.STEP_RANK: [
        *_HEAD,
        *((name, "<u8") for name in ("step", "start_ns", "end_ns", "device_ns", "wait_ns")),
        *((name, "<u4") for name in _RANK_IDS),
        ("unused", "V56"),
    ],
    Kind.REQUEST_ARRIVED: [
        *_HEAD,
        ("handle", "<u8"),
        ("arrival_ns", "<u8"),
        ("trace_id", "V16"),
        ("span_id", "V8"),
        ("parent_span_id", "V8"),
        ("flags", "u1"),
        ("pad", "u1"),
        ("request_id_bytes", "<u2"),
        ("external_id_bytes", "<u2"),
        ("unused", "<u2"),
        ("request_id", "u1", (INLINE_ID_BYTES,)),
    ],
    Kind.REQUEST_TEXT: [
        *_HEAD,
        ("handle", "<u8"),
        ("which", "u1"),
        ("pad", "u1"),
        ("text_bytes", "<u2"),
        ("unused", "V12"),
        ("text", "u1", (TEXT_BYTES,)),
    ],
    Kind.REQUEST_EVENT: [
        *_HEAD,
        *((name, "<u8") for name in ("handle", "time_ns", "step")),
        ("tokens", "<u4"),
        ("event", "u1"),
        ("unused", "V91"),
    ],
    Kind.REQUEST_ENDED: [
        *_HEAD,
        ("handle", "<u8"),
        ("time_ns", "<u8"),
        *((name, "<u4") for name in _TOTALS),
        ("finish", "u1"),
        ("error", "u1"),
        ("unused", "V82"),
    ],
    Kind.PAUSE: [*_HEAD, ("start_ns", "<u8"), ("end_ns", "<u8"), ("reason", "u1"), ("unused", "V103")],
    Kind.HOOK_OFF: [
        *_HEAD,
        *((name, "<u8") for name in ("time_ns", "p99_ns", "budget_ns")),
        ("reason", "u1"),
        ("pad", "V7"),
        ("hook", "V32"),
        ("unused", "V56"),
    ],
    Kind.COLLECTIVE: [
        *_HEAD,
        *((name, "<u8") for name in ("step", "group", "bytes", "start_ns", "end_ns", "device_ns")),
        *((name, "<u4") for name in ("rank", "seq")),
        ("op", "u1"),
        ("unused", "V63"),
    ],
    Kind.STEP_PHASES: [
        *_HEAD,
        *((name, "<u8") for name in ("step", "iteration", *_PHASE_TIMES)),
        *((name, "<u4") for name in ("rank", "micro_batches")),
        ("unused", "V64"),
    ],
}

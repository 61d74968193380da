# Which attributes the store indexes, and which are content that nobody can search for unless asked.
# An index entry is a hash of key and value, so the index itself holds no text.
import hashlib
from collections.abc import Iterable

from otel_llmprism.semconv import finding, rank, request, resource, step

MAX_INDEXED = 64
MAX_INDEXED_VALUE = 256

SPAN_KEYS = (
    *(request.REQUEST_ID, request.REQUEST_EXTERNAL_ID),
    *(request.GEN_AI_OPERATION_NAME, request.GEN_AI_PROVIDER_NAME, request.GEN_AI_REQUEST_MODEL),
    *("gen_ai.response.model", "gen_ai.response.id", "gen_ai.request.id", "gen_ai.conversation.id"),
    *("gen_ai.agent.name", "gen_ai.tool.name"),
    *(step.STEP_ID, step.STEP_KIND, step.STEP_KEPT, step.STEP_ANOMALOUS, step.STEP_GRAPH_MODE, step.MODE),
    *(step.STEP_ITERATION, rank.RANK_GLOBAL, rank.RANK_TP, rank.RANK_PP, rank.RANK_DP),
    *(finding.FINDING_ID, finding.FINDING_KIND, finding.FINDING_STATE),
    *(finding.FINDING_SUBJECT_TYPE, finding.FINDING_SUBJECT_ID),
    *("error.type", "http.request.method", "http.response.status_code", "http.route"),
    *("rpc.system", "rpc.service", "rpc.method", "db.system.name", "messaging.system", "server.address"),
)
RESOURCE_KEYS = (
    *(resource.SERVICE_NAME, resource.SERVICE_NAMESPACE, resource.SERVICE_INSTANCE_ID, resource.HOST_NAME),
    *(resource.ENGINE_ID, resource.ENGINE_RUN, resource.ENGINE_NAME, resource.JOB_ID),
    *("k8s.namespace.name", "k8s.pod.name", "deployment.environment.name"),
)

# Names by which the conventions in use (OpenTelemetry, OpenInference, Traceloop) carry prompts,
# completions, tool traffic and exception texts. A name counts with everything below it.
_CONTENT_ROOTS = (
    *("gen_ai.prompt", "gen_ai.completion", "gen_ai.input.messages", "gen_ai.output.messages"),
    *("gen_ai.system_instructions", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"),
    *("gen_ai.tool.definitions", "gen_ai.content", "gen_ai.event.content", "gen_ai.retrieval.documents"),
    *("gen_ai.retrieval.query.text", "gen_ai.memory.records"),
    *("llm.prompts", "llm.completions", "llm.input_messages", "llm.output_messages", "llm.prompt_template"),
    *("llm.function_call", "llm.tools", "input.value", "output.value", "retrieval.documents"),
    *("embedding.embeddings", "embedding.text", "tool.parameters", "message.content"),
    *("traceloop.entity.input", "traceloop.entity.output", "prompt", "completion", "messages"),
    *("exception.message", "exception.stacktrace"),
)


def is_content(key: str) -> bool:
    """Tell whether `key` names prompt, completion or exception text, or lies below such a name."""
    lowered = key.lower()
    return any(lowered == root or lowered.startswith((root + ".", root + "_")) for root in _CONTENT_ROOTS)


def choose_indexed_keys(extra: Iterable[str], *, with_content: bool) -> tuple[str, ...]:
    """Return the span keys to index, built-in ones first; content is left out unless asked."""
    asked = [key for key in extra if with_content or not is_content(key)]
    unique = tuple(dict.fromkeys((*SPAN_KEYS, *asked)))
    if len(unique) > MAX_INDEXED:
        room = MAX_INDEXED - len(SPAN_KEYS)
        raise ValueError(
            f"index_attributes: at most {room} keys besides the built-in ones, {len(asked)} given"
        )
    return unique


def hash_tag(key: str, value: bytes) -> int:
    """Return the signed 64-bit index entry of one attribute value in its canonical text form."""
    digest = hashlib.blake2b(key.encode() + b"\0" + value, digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)

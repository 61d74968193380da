# The span of one rank's part in one collective of a kept step. Constants only.
SPAN_COLLECTIVE = "llmprism.collective"

COLLECTIVE_OP = "llmprism.collective.op"
COLLECTIVE_GROUP = "llmprism.collective.group"
COLLECTIVE_SEQ = "llmprism.collective.seq"
COLLECTIVE_BYTES = "llmprism.collective.bytes"
COLLECTIVE_WAIT_S = "llmprism.collective.wait_s"

OPS = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"),
    *("gather", "scatter", "send", "recv", "barrier"),
)

# Metric names of the processor's own flow: what came in, waits, went on. Constants only.
INGRESS_REQUESTS = "llmprism.ingress.requests"
INGRESS_BYTES = "llmprism.ingress.bytes"
EGRESS_REQUESTS = "llmprism.egress.requests"
QUEUE_BYTES = "llmprism.queue.bytes"
QUEUE_REQUESTS = "llmprism.queue.requests"
OLDEST_AGE = "llmprism.queue.oldest_age"
LOG_BYTES = "llmprism.log.bytes"
LOG_ERRORS = "llmprism.log.errors"
LOG_TORN_TAILS = "llmprism.log.torn_tails"
LOG_REPLAYED = "llmprism.log.replayed"
HOLD_BYTES = "llmprism.hold.bytes"
HOLD_EARLY = "llmprism.hold.early"
DEAD_LETTERS = "llmprism.dead_letters"
PIPELINE_ERRORS = "llmprism.pipeline.errors"

UNITS = {INGRESS_BYTES: "By", QUEUE_BYTES: "By", OLDEST_AGE: "s", LOG_BYTES: "By", HOLD_BYTES: "By"}

# Metric names of what leaves the processor. Constants only.
EGRESS_BYTES = "llmprism.egress.bytes"
EGRESS_RETRIES = "llmprism.egress.retries"
EGRESS_SPLITS = "llmprism.egress.splits"
EGRESS_IN_FLIGHT = "llmprism.egress.in_flight"
EGRESS_FAILING = "llmprism.egress.failing"
CONSUMED = "llmprism.consumed.requests"
RELOADS = "llmprism.config.reloads"
CONFIG_FAILING = "llmprism.config.failing"

UNITS = {EGRESS_BYTES: "By"}

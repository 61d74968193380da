# Metric names of the deep-dive relay. Constants only.
CONTROL_REQUESTS = "llmprism.control.requests"

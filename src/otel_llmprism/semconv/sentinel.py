# Metric names of the sentinel's own work. Constants only.
SENTINEL_BATCHES = "llmprism.sentinel.batches"
SENTINEL_QUEUE_BYTES = "llmprism.sentinel.queue_bytes"
SENTINEL_STAMPED = "llmprism.sentinel.stamped"
SENTINEL_STATE_ERRORS = "llmprism.sentinel.state_errors"

UNITS = {
    SENTINEL_BATCHES: "{batch}",
    SENTINEL_QUEUE_BYTES: "By",
    SENTINEL_STAMPED: "{span}",
    SENTINEL_STATE_ERRORS: "{error}",
}

# Metric names of the embedded store. Constants only.
STORE_SPANS = "llmprism.store.spans"
STORE_DUPLICATES = "llmprism.store.duplicates"
STORE_FORGOTTEN = "llmprism.store.forgotten"
STORE_EVENTS = "llmprism.store.events"
STORE_RETRIES = "llmprism.store.retries"
STORE_USED_BYTES = "llmprism.store.used_bytes"

UNITS = {
    STORE_SPANS: "{span}",
    STORE_DUPLICATES: "{span}",
    STORE_FORGOTTEN: "{span}",
    STORE_EVENTS: "{event}",
    STORE_RETRIES: "{attempt}",
    STORE_USED_BYTES: "By",
}

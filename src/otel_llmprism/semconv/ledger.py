# The ledger on the wire: OTLP log records in a scope of their own. Constants only.
SCOPE = "otel_llmprism.ledger"
EVENT_LEDGER = "llmprism.ledger"
EVENT_HOST = "llmprism.host"
VERSION = "llmprism.ledger.version"
NODE = "llmprism.ledger.node"
SEQ = "llmprism.ledger.seq"
FIRST_STEP = "llmprism.ledger.first_step"
LAST_STEP = "llmprism.ledger.last_step"
MAX_BODY_BYTES = 1 << 20
MAX_INTERVAL_S = 0.5

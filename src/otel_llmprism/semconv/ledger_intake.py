# Metric names of ledgers that arrive at the processor. Constants only.
LEDGER_CHUNKS = "llmprism.ledger.chunks"
LEDGER_STEPS = "llmprism.ledger.steps"
LEDGER_LAST_STEP_SEEN = "llmprism.ledger.last_step_seen"

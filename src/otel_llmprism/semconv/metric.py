# Metric names with their units and histogram boundaries. Constants only.
REQUEST_DURATION = "gen_ai.server.request.duration"
TIME_TO_FIRST_TOKEN = "gen_ai.server.time_to_first_token"
TIME_PER_OUTPUT_TOKEN = "gen_ai.server.time_per_output_token"
STEP_CYCLE = "llmprism.step.cycle"
STEP_TOKENS = "llmprism.step.tokens"
STEP_GAP = "llmprism.step.gap"
STEP_EXCESS = "llmprism.step.excess"
STEP_EXPECTED = "llmprism.step.expected"
ENGINE_REQUESTS = "llmprism.engine.requests"
ENGINE_KV_USAGE = "llmprism.engine.kv_usage"
FINDING_ACTIVE = "llmprism.finding.active"
FINDING_OPENED = "llmprism.finding.opened"
EXPORT_BYTES = "llmprism.export.bytes"
LOST = "llmprism.lost"
HOOK_TIME = "llmprism.hook.time"

UNITS = {
    REQUEST_DURATION: "s",
    TIME_TO_FIRST_TOKEN: "s",
    TIME_PER_OUTPUT_TOKEN: "s",
    STEP_CYCLE: "s",
    STEP_TOKENS: "{token}",
    STEP_GAP: "s",
    STEP_EXCESS: "s",
    STEP_EXPECTED: "s",
    ENGINE_REQUESTS: "{request}",
    ENGINE_KV_USAGE: "{ratio}",
    FINDING_ACTIVE: "{finding}",
    FINDING_OPENED: "{finding}",
    EXPORT_BYTES: "By",
    LOST: "{record}",
    HOOK_TIME: "s",
}

BUCKETS = {
    REQUEST_DURATION: (
        *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12),
        *(10.24, 20.48, 40.96, 81.92),
    ),
    TIME_TO_FIRST_TOKEN: (
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0),
        *(2.5, 5.0, 7.5, 10.0),
    ),
    TIME_PER_OUTPUT_TOKEN: (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    STEP_CYCLE: (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0),
    STEP_GAP: (0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0),
}

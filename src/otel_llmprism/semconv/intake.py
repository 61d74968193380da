# Metric names of the receivers: what was refused before the pipeline saw it. Constants only.
INTAKE_REFUSED = "llmprism.intake.refused"
INTAKE_INVALID_UTF8 = "llmprism.intake.invalid_utf8"

UNITS = {INTAKE_REFUSED: "{request}", INTAKE_INVALID_UTF8: "{string}"}

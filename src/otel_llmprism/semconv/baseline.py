# Metric, event and attribute names of expected-time models. Constants only.
EVENT_BASELINE_FITTED = "llmprism.baseline.fitted"
EVENT_BASELINE_DRIFT = "llmprism.baseline.drift"
BASELINE_VERSION = "llmprism.baseline.version"
BASELINE_STEPS = "llmprism.baseline.steps"
BASELINE_AGAINST = "llmprism.baseline.against"
BASELINE_RATIO = "llmprism.baseline.ratio"
BASELINE_FITS = "llmprism.baseline.fits"
BASELINE_REFUSED = "llmprism.baseline.refused"

UNITS = {BASELINE_RATIO: "1", BASELINE_FITS: "{model}", BASELINE_REFUSED: "{model}"}

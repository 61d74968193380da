# The embedded store of `otel-llmprism up`: OTLP batches in, searchable traces out (docs/adr/0070).

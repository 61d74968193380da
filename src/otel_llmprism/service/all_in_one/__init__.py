# `otel-llmprism up`: receivers, processor, store, page and query API in one process (docs/adr/0072).

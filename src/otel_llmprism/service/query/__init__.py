# The query API over the embedded store: what Jaeger's clients call, and our own (docs/adr/0071).

# `python -m otel_llmprism`: the same command line as `otel-llmprism`.
from otel_llmprism.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())

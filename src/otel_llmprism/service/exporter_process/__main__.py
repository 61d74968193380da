# `python -m otel_llmprism.service.exporter_process RUN_FOLDER`: started by the instrumentation, one per
# engine run and node.
import sys

from otel_llmprism.service.exporter_process.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

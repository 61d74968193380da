# One task runner; `make help` lists what it does. CI runs the same targets (see .ci/run).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NATIVE_SOURCES := $(shell find native -type f 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help demo test check integration tools native format clean bench-ledger bench-log bench-bytes bench-import bench-store bench-relay soak

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml $(NATIVE_SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

venv: $(STAMP) ## make .venv with everything installed
native: $(STAMP) ## rebuild the native library after a change

demo: $(STAMP) ## run the main job: an engine, the processor, the page (vLLM after make engines; in a pipe: until done)
	engines=$$($(BIN)/python tools/build_engines.py --check 2>/dev/null) && python="--engine-python $$engines/bin/python"; \
	$(BIN)/otel-llmprism demo --fault none $$python $$([ -t 1 ] || echo --exit)

test: $(STAMP) ## run the tests that need nothing but Python
	$(BIN)/python -m pytest $(PYTEST_FLAGS) -m "not integration and not signature"

check: $(STAMP) ## run every check that CI runs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_sizes.py

tools: $(STAMP) ## build Collector, telemetrygen and Jaeger (pinned) into a cache outside the clone
	$(BIN)/python tools/build_tools.py

integration: $(STAMP) ## run the tests against the real Collector, telemetrygen and Jaeger
	$(BIN)/python -m pytest $(PYTEST_FLAGS) -m "integration and not engine"

.PHONY: engines engines-test
engines: $(STAMP) ## install real vLLM (pinned, CPU) and fetch engines' sources into a cache outside the clone
	$(BIN)/python tools/build_engines.py
	$(BIN)/python tools/fetch_engine_sources.py

engines-test: $(STAMP) ## run the tests against real vLLM and the engines' real sources; needs make engines
	$(BIN)/python -m pytest $(PYTEST_FLAGS) -m "engine or signature"

bench-store: $(STAMP) ## measure SQLite against DuckDB for the store; writes benchmarks/results/store_engines.md
	$(BIN)/python -m pip install --quiet duckdb
	$(BIN)/python benchmarks/store_engines.py

bench-bytes: $(STAMP) ## measure what leaves an engine's node and write benchmarks/results/exported_bytes.md
	$(BIN)/python benchmarks/exported_bytes.py --write

bench-import: $(STAMP) ## measure the import of the instrumentation and write benchmarks/results/import_time.md
	$(BIN)/python benchmarks/import_time.py --write

.PHONY: bench-startup bench-vllm bench-vllm-hooks
bench-vllm-hooks: $(STAMP) ## measure the hooks inside real vLLM and write benchmarks/results/vllm_hooks.md
	$(BIN)/python benchmarks/vllm_hooks.py --write

bench-startup: $(STAMP) ## measure what the start of an engine pays and write benchmarks/results/startup.md
	$(BIN)/python benchmarks/startup.py --write

bench-vllm: $(STAMP) ## measure real vLLM with and without us (a quarter of an hour; needs make engines)
	$(BIN)/python benchmarks/vllm_overhead.py --write

bench-vllm-steps: $(STAMP) ## measure a step's hooks at vLLM's places without vLLM; writes benchmarks/results/vllm_steps.md
	$(BIN)/python benchmarks/vllm_steps.py --write

.PHONY: bench-expected bench-detectors bench-sentinel evaluate evaluate-short
bench-expected: $(STAMP) ## measure expected time against held-out work; writes benchmarks/results/expected_time.md
	$(BIN)/python benchmarks/expected_time.py --write

bench-detectors: $(STAMP) ## measure control charts and step flags on made streams; writes benchmarks/results/detectors.md
	$(BIN)/python benchmarks/detectors.py --write

bench-sentinel: $(STAMP) ## measure what a step costs the sentinel; writes benchmarks/results/sentinel_cost.md
	$(BIN)/python benchmarks/sentinel_cost.py --write

evaluate: $(STAMP) ## inject real faults, judge what is found, write docs/evaluation.md (hours)
	$(BIN)/python -m otel_llmprism.testing.evaluation --full --write docs/evaluation.md

evaluate-short: $(STAMP) ## the same with few runs a fault (minutes)
	$(BIN)/python -m otel_llmprism.testing.evaluation --short --write docs/evaluation.md

.PHONY: bench-hooks bench-vllm-steps
bench-hooks: $(STAMP) ## measure what our hooks cost a step and write benchmarks/results/hook_cost.md
	$(BIN)/python benchmarks/hook_cost.py --write

bench-ledger: $(STAMP) ## measure ring and ledger and write benchmarks/results/ledger.md
	$(BIN)/python benchmarks/ledger.py

bench-log: $(STAMP) ## measure the write-ahead log and write benchmarks/results/log.md
	$(BIN)/python benchmarks/log.py --write

.PHONY: bench-wire fuzz sanitize
bench-wire: $(STAMP) ## measure the OTLP scanner and write benchmarks/results/wire_scan.md
	$(BIN)/python benchmarks/wire_scan.py --write

FUZZ_SECONDS ?= 60
FUZZERS := $(patsubst native/fuzz/%_fuzz.cpp,%,$(wildcard native/fuzz/*_fuzz.cpp))
CHECKED := -std=c++20 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -Inative/include

fuzz: ## fuzz the native code, FUZZ_SECONDS for each target (needs clang)
	@command -v clang++ >/dev/null || { echo "make fuzz needs clang with libFuzzer: apt-get install clang" >&2; exit 1; }
	@for name in $(FUZZERS); do \
	  mkdir -p build/fuzz/$$name && \
	  clang++ $(CHECKED) -fsanitize=fuzzer native/src/*.cpp native/fuzz/$${name}_fuzz.cpp -o build/fuzz/$${name}_fuzz && \
	  build/fuzz/$${name}_fuzz -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -max_len=16384 \
	    -artifact_prefix=build/fuzz/ -print_final_stats=1 build/fuzz/$$name native/fuzz/corpus/$$name || exit 1; \
	done

sanitize: $(STAMP) ## run the corpus and the native tests under ASan and UBSan
	mkdir -p build/sanitize
	@for name in $(FUZZERS); do \
	  $(CXX) $(CHECKED) native/src/*.cpp native/fuzz/$${name}_fuzz.cpp native/fuzz/replay.cpp -o build/sanitize/$$name && \
	  build/sanitize/$$name native/fuzz/corpus/$$name/* || exit 1; \
	done
	$(CXX) $(CHECKED) -fPIC -shared native/src/*.cpp -o build/sanitize/libllmprism.so
	$(CXX) $(CHECKED) -fPIC -shared -isystem $$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('include'))") \
	  native/python/*.cpp -o build/sanitize/llmprism_hooks.abi3.so
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 \
	  OTEL_LLMPRISM_NATIVE=$(CURDIR)/build/sanitize $(BIN)/python -m pytest tests/native tests/unit/instrumentation/vllm

bench-relay: $(STAMP) ## measure CPU and delay of a relayed span against the Collector; needs make tools
	$(BIN)/python benchmarks/relay.py --write benchmarks/results/relay.md

SOAK_MINUTES ?= 10
soak: $(STAMP) ## watch the processor's memory while its backend is down, SOAK_MINUTES long
	$(BIN)/python benchmarks/soak.py --minutes $(SOAK_MINUTES) --write benchmarks/results/soak.md

.PHONY: soak-engine bench-exporter
soak-engine: $(STAMP) ## watch the memory of an instrumented engine and its exporter, SOAK_MINUTES long
	$(BIN)/python benchmarks/soak_engine.py --minutes $(SOAK_MINUTES) --write

bench-exporter: $(STAMP) ## measure the exporter's CPU at 100 steps/s of 8 ranks; writes benchmarks/results/exporter_cpu.md
	$(BIN)/python benchmarks/exporter_cpu.py --write

format: $(STAMP) ## format the sources
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove what the targets made
	rm -rf $(VENV) build dist

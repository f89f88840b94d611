# `make help` lists what there is. CONTRIBUTING.md says when each is run.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo build build-tools test torture bench limits fuzz lint fmt clippy deny docs components

CARGO ?= cargo
LOCKED := --locked

# Sourced before anything that runs against real components; a missing one then fails its tests.
WITH_COMPONENTS := source tests/components/env; export SLUICE_TEST_REQUIRE_COMPONENTS=1;

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: build-tools ## build sluice and show three pipelines, one of them dead and one refusing, under load (DEMO_ARGS=...)
	$(CARGO) build --release $(LOCKED) -p sluice --bin sluice
	"$${CARGO_TARGET_DIR:-target}/release/sluice" demo $(DEMO_ARGS)

build: build-tools ## the release binary
	$(CARGO) build --release $(LOCKED) -p sluice --bin sluice

build-tools: ## what the build needs beside Rust: a C compiler, and on x86-64 nasm and the autotools
	@hack/build-tools

components: ## what the tests run against: Collector, Rotel, Prometheus, nginx, SDK clients, … (cached by version)
	tests/components/install

# --no-fail-fast: one run says everything that is wrong. Both commands share one profile and so one build.
test: build-tools components ## everything that asserts (TEST_ARGS=... is handed to cargo test)
	$(CARGO) build $(LOCKED) --workspace --all-targets
	$(WITH_COMPONENTS) $(CARGO) test $(LOCKED) --workspace --no-fail-fast $(TEST_ARGS)

# The long runs are tests that cargo ignores by default and whose names contain `torture`.
# They run the release binary: latencies are compared.
torture: build components ## the long fault runs
	tests/components/install telegraf
	$(CARGO) build $(LOCKED) --workspace --all-targets
	$(WITH_COMPONENTS) export SLUICE_TEST_BINARY="$$(realpath "$${CARGO_TARGET_DIR:-target}/release/sluice")"; \
		$(CARGO) test $(LOCKED) --workspace --no-fail-fast -- --ignored --nocapture --test-threads=1 torture

bench: build-tools ## rates, latencies and CPU an item as ratios, side by side (QUICK=1: the speed table in a few minutes; BENCH_ARGS=...)
	tests/components/install otelcol nginx victoria-metrics etcd kube-apiserver telegraf
	$(CARGO) build --release $(LOCKED) -p sluice -p sluice-bench --bins
	$(if $(BENCH_ARGS),,$(CARGO) run --release $(LOCKED) -p sluice-log --example log_speed)
	$(WITH_COMPONENTS) $(CARGO) run --release $(LOCKED) -p sluice-bench -- $(if $(QUICK),--quick) $(BENCH_ARGS)

limits: build ## docs/limits.md: every scenario of the limit test for every subject, in half an hour (goes on where it was interrupted)
	tests/components/install otelcol rotel telegraf influxdb
	source tests/components/env; SLUICE="$${CARGO_TARGET_DIR:-target}/release/sluice" hack/load-tests/limits.sh

FUZZ_TARGETS ?= $(filter-out write_corpus,$(basename $(notdir $(wildcard fuzz/targets/*.rs))))
FUZZ_SECONDS ?= 60

# What it finds lies in fuzz/artifacts. CI has no nightly compiler: there the tests `fuzz_corpus` replay the corpus.
fuzz: ## coverage-guided fuzzing of the decoders of fuzz/README.md (FUZZ_SECONDS=60 each; FUZZ_TARGETS="scan split"; nightly, cargo-fuzz)
	for target in $(FUZZ_TARGETS); do fuzz/run "$$target" $(FUZZ_SECONDS); done

lint: fmt clippy deny docs ## format, clippy, licences, bans, sources, documentation

fmt:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check

clippy: build-tools
	$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings
# Nothing is linked here: a path to libFuzzer keeps it from being built, which would want a C++ compiler.
	CUSTOM_LIBFUZZER_PATH=/libFuzzer.a $(CARGO) clippy $(LOCKED) --manifest-path fuzz/Cargo.toml -- -D warnings

deny:
	tests/components/install cargo-deny
	source tests/components/env; "$$SLUICE_TEST_CARGO_DENY" $(LOCKED) check --hide-inclusion-graph licenses bans sources

docs: build-tools
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(LOCKED) --workspace --no-deps --lib

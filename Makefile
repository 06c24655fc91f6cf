# Everything runs in .venv; the first target that needs it makes it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEEDS ?= 200
FIRST ?= 1
export DAGSTER_DISABLE_TELEMETRY := yes

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this help
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.installed: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

.PHONY: install
install: $(VENV)/.installed ## set up .venv with everything (kds-cdc is in .venv/bin)

.PHONY: demo
demo: install ## run the main job on packaged samples, compare with the source, show the result
	$(BIN)/kds-cdc demo

.PHONY: test
test: install ## set up and run all tests (on all cores)
	$(BIN)/python -m pytest -n auto --dist loadfile

.PHONY: dev
dev: install ## Dagster UI with sensors on (KDS_CDC_HOME, default ./.kds-cdc), with simulated traffic
	$(BIN)/kds-cdc dev

.PHONY: checks
checks: install ## every check on an existing deployment (the KDS_CDC_* variables say which); fails naming what is wrong
	$(BIN)/kds-cdc checks

.PHONY: format
format: install ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: check
check: install ## format, lint, strict types, import rules, tests: what CI runs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) test

.PHONY: simulate
simulate: install ## deterministic simulation: SEEDS=how many, FIRST=first seed
	$(BIN)/python -m kds_cdc_dagster_tests.simulation --first $(FIRST) --seeds $(SEEDS)

.PHONY: gate
gate: install ## release gate: each stage × fault × warehouse ends the same (repeat, interrupt, twin, older)
	$(BIN)/python -m kds_cdc_dagster_tests.gate

.PHONY: bench
bench: install ## benchmarks: rates, ratios, medians
	$(BIN)/python -m kds_cdc_dagster_tests.bench

.PHONY: bench-quick
bench-quick: install ## the same with fewer runs, in under two minutes
	$(BIN)/python -m kds_cdc_dagster_tests.bench --quick

.PHONY: bench-daemon
bench-daemon: install ## the long ones, about half an hour: through the real daemon, at 1,000/s and 300/s, a backlog, growth
	$(BIN)/python -m kds_cdc_dagster_tests.bench daemon-1000 daemon-300 daemon-backlog daemon-growth

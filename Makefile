# Everything that a person or CI does with this repository. `make` alone says what there is.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PACKAGES := consumers orchestration spark_jobs
ARGS ?=
BENCH ?= ingest
ONLY ?=

export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup demo up test test-unit simulate faults check format lock bench clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## Make the environment in .venv from the lock

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
		|| { echo "Weir needs Python 3.11 to 3.13; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
		|| { echo "$(PYTHON) cannot make an environment; on Debian and Ubuntu install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## Run the main job end to end and open it in Dagster (ARGS=--once verifies and exits)
	$(BIN)/weir demo $(ARGS)

up: setup ## Kafka, a live replay of flights, Dagster's webserver and daemon
	$(BIN)/weir up $(ARGS)

test: setup ## All tests, with real Kafka, Spark, Dagster
	$(BIN)/python -m pytest -n 2 --durations 25 $(ARGS)

test-unit: setup ## Tests that need neither Kafka nor a JVM
	$(BIN)/python -m pytest -n 2 -m "not integration and not spark and not faults and not browser" $(ARGS)

simulate: setup ## 10,000 simulated schedules; ARGS='--seed 1234' replays one with its trace
	$(BIN)/python -m tests.simulation $(ARGS)

faults: setup ## Faults on real Kafka, and what they left wrong (ONLY=name,name; ARGS='--times 5 --records 5000')
	$(BIN)/python -m tests.faults --only "$(ONLY)" $(ARGS)

check: setup ## Lint, types, import contracts, Dagster definitions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/dg check defs --log-level error

format: setup ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: setup ## Renew requirements.lock to the newest versions that fit pyproject.toml
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
		--group dev pyproject.toml --output-file requirements.lock

bench: setup ## Ingestion beside peers (BENCH=produce, transform, parallel, scale, jobs: the others)
	$(BIN)/python -m benchmarks.$(BENCH) $(ARGS)

clean: ## Remove the environment; state in .weir stays
	rm -rf $(VENV)

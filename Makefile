# Everything a person needs: `make run` serves, `make test` tests, `make check` holds the rules,
# `make bench` measures. Each sets up what it needs in .venv, from locked versions, and nothing else.

PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check --quiet --quiet
# The tests wait for a third of their time: three workers keep two cores busy, and whoever has none left takes some of
# another's.
PYTEST_ARGS ?= -n 3 --dist worksteal
EFFORT ?= 10
MINUTES ?= 10

.DEFAULT_GOAL := help
.PHONY: help run test test-newest torture check format demo bench bench-page bench-reports soak audit lock clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

run: $(VENV)/.run ## serve on 127.0.0.1:8080 from an embedded SQLite file
	@exec $(VENV)/bin/fairlane serve

test: $(VENV)/.dev ## all tests, on SQLite and on a real Postgres
	@$(VENV)/bin/python -m pytest $(PYTEST_ARGS)

test-newest: $(VENV)/.dev ## a selection of them on the newest Python of this machine
	@.ci/newest

torture: $(VENV)/.dev ## the attacks alone, EFFORT=10 times as hard; FAIRLANE_TEST_SEED repeats one
	@FAIRLANE_TEST_EFFORT=$(EFFORT) $(VENV)/bin/python -m pytest -m torture -rA $(PYTEST_ARGS)

check: $(VENV)/.dev ## format, lint, types, import rules
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

format: $(VENV)/.dev ## put the code into its format
	@$(VENV)/bin/ruff format .
	@$(VENV)/bin/ruff check --fix .

demo: $(VENV)/.dev ## see it at work: three tenants, three workers, one of them killed
	@$(VENV)/bin/python examples/demo.py

bench: $(VENV)/.dev ## measure, beside peers; ROWS=submit,drain a part; figures compare only within one run
	@$(VENV)/bin/python -m bench --rows "$(ROWS)"

bench-page: $(VENV)/.dev ## put the figures of the last `make bench` into docs/performance.md
	@$(VENV)/bin/python -m bench.page

soak: $(VENV)/.dev ## half of the top rate for MINUTES=10, on both databases: memory, journal, dead rows, late ticks
	@$(VENV)/bin/python -m bench.soak --minutes $(MINUTES)

bench-reports: $(VENV)/.dev ## measure reports beside a million jobs; takes half an hour and 3 GB
	@$(VENV)/bin/python -m bench.reports

audit: $(VENV)/audit/.done ## the locked versions against known advisories; asks their database
	@$(VENV)/audit/bin/pip-audit --strict --require-hashes --disable-pip --progress-spinner off \
		--requirement requirements.lock --requirement requirements-dev.lock

lock: $(VENV)/.dev ## write the locked versions anew from pyproject.toml
	@$(VENV)/bin/uv pip compile $(LOCK) pyproject.toml --output-file requirements.lock
	@$(VENV)/bin/uv pip compile $(LOCK) pyproject.toml --group dev --output-file requirements-dev.lock
	@$(VENV)/bin/uv pip compile $(LOCK) --group pyproject.toml:audit --output-file requirements-audit.lock
	@$(VENV)/bin/uv pip compile $(LOCK) bench/peers/peers.in --output-file bench/peers/peers.lock

LOCK := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

clean: ## remove what the other targets made, but no database
	@rm -rf $(VENV) $(VENV)-newest .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Fairlane needs Python 3.11 or newer; say which one with: make PYTHON=python3.13 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements.lock pyproject.toml | $(VENV)/bin/python
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --editable .
	@touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml | $(VENV)/bin/python
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@$(PIP) install --no-deps --editable .
	@touch $@ $(VENV)/.run

$(VENV)/audit/.done: requirements-audit.lock | $(VENV)/bin/python
	@$(VENV)/bin/python -m venv $(VENV)/audit
	@$(VENV)/audit/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements-audit.lock
	@touch $@

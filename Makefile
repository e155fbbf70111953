# The list of commands; `make` alone prints it. Needs Python 3.11 or later and make, nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
ARGS ?=
CHAOS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test long lint format generate typing clean

help: ## print this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  %-14s %s\n", $$1, $$2 }'

demo: $(VENV)/.installed ## see a task outlast the process that runs it
	$(BIN)/outlast demo

test: $(VENV)/.installed-dev ## run every test but the long ones, on SQLite and on a PostgreSQL that the tests start; ARGS="-k word" for some
	$(BIN)/python -m pytest -n 4 -m "not long" $(ARGS)

long: $(VENV)/.installed-dev ## run what takes minutes more: the suites of the ports through PgBouncer, which has to be installed
	$(BIN)/python -m pytest -n 4 -m long $(ARGS)

lint: $(VENV)/.installed-dev ## format, rules, types, who imports whom, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/architecture

format: $(VENV)/.installed-dev ## let the formatter and its safe fixes do their work
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: $(VENV)/.installed-dev ## write anew what scripts write: the blocking surface, and the drawings of the states; the tests fail while they are not current
	$(BIN)/python scripts/generate_blocking.py
	$(BIN)/python scripts/draw_transitions.py

typing: $(VENV)/.installed-dev ## what a user's editor says about the public surface, by mypy and by pyright
	$(BIN)/mypy
	$(BIN)/python -m pytest -q $(wildcard tests/typing) $(ARGS)

ifneq ($(wildcard bench/__main__.py),)
.PHONY: bench
bench: $(VENV)/.installed-dev ## measure side by side with the peers; ARGS="--short" for a quick look
	$(BIN)/python -m bench $(ARGS)
endif

ifneq ($(wildcard tests/growth),)
.PHONY: growth
growth: $(VENV)/.installed-dev ## plans and paces in a database with a million finished and a million sleeping runs; ARGS="--share 0.1" for a tenth
	$(BIN)/python -m tests.growth $(ARGS)
endif

ifneq ($(wildcard tests/crash),)
.PHONY: chaos
chaos: $(VENV)/.installed-dev ## the crash tests, then six minutes of random faults on each database and a checker; CHAOS="--seed 7" plays one again
	$(BIN)/python -m pytest -n 4 tests/crash $(ARGS)
	$(BIN)/python -m tests.chaos $(CHAOS)
endif

ifneq ($(wildcard tests/outage),)
.PHONY: outage
outage: $(VENV)/.installed-dev ## take the database away from workers and callers in every way, and see that all goes on by itself
	$(BIN)/python -m pytest -n 4 tests/outage $(ARGS)
endif

clean: ## remove the environment and what the tools left
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.*

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "outlast needs Python 3.11 or later: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

# The stamps are older than what they were made from only when that has changed; the environment is then brought up to date.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e '.[dev]'
	@touch $(VENV)/.installed $@

# The list of commands; `make` alone prints it. Needs Python 3.11 or later and make, nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test lint format typing clean

help: ## print this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  %-14s %s\n", $$1, $$2 }'

demo: $(VENV)/.installed ## see a task outlast the process that runs it
	$(BIN)/outlast demo

test: $(VENV)/.installed-dev ## run every test, on SQLite and on a PostgreSQL that the tests start; ARGS="-k word" for some
	$(BIN)/python -m pytest -n 4 $(ARGS)

lint: $(VENV)/.installed-dev ## format, rules, types, who imports whom, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/architecture

format: $(VENV)/.installed-dev ## let the formatter and its safe fixes do their work
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typing: $(VENV)/.installed-dev ## what a user's editor says about the public surface, by mypy and by pyright
	$(BIN)/mypy
	$(BIN)/python -m pytest -q $(wildcard tests/typing) $(ARGS)

ifneq ($(wildcard bench/__main__.py),)
.PHONY: bench
bench: $(VENV)/.installed-dev ## measure side by side with the peers; ARGS="--short" for a quick look
	$(BIN)/python -m bench $(ARGS)
endif

ifneq ($(wildcard tests/crash),)
.PHONY: chaos
chaos: $(VENV)/.installed-dev ## kill workers and databases, and look at what is left
	$(BIN)/python -m pytest -n 4 tests/crash $(ARGS)
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

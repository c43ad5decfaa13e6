# Everything a newcomer needs: `make quickstart` runs the main job, `make test` passes the tests.
# Each target sets up .venv by itself. ENVIRONMENT=cuda picks environments/cuda.txt.
# pip reads PIP_INDEX_URL and PIP_EXTRA_INDEX_URL from your environment as usual.

SHELL := /bin/bash
PYTHON ?= python3
ENVIRONMENT ?= cpu
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready-$(ENVIRONMENT)
OUT ?= outputs/quickstart
PROFILE ?= quick
# One thread a process: the tests start several processes on few cores.
TEST_ENV := OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
WORKERS ?= 2

.PHONY: help setup quickstart test soak browser check bench docs clean

help:
	@echo "make quickstart   render a small world, train on it, resume, generate, and open the report"
	@echo "make test         all checks and tests (10 to 20 minutes on two cores)"
	@echo "make soak         the long reliability counts (docs/reliability.md)"
	@echo "make check        lint, types, import layers"
	@echo "make bench        side-by-side ratios (QUICK=1 for a short run)"
	@echo "make docs         regenerate the CLI, config and error references"

setup: $(READY)

$(READY): pyproject.toml environments/$(ENVIRONMENT).txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "solarwm needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 5; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c environments/$(ENVIRONMENT).txt -e '.[run,fast,tensorboard,play,bench,dev]'
	@touch $@

quickstart: $(READY)
	$(BIN)/python tools/quickstart.py --profile $(PROFILE) --out $(OUT)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

# Tests of pages open them in a headless browser, and skip, saying so, where there is none.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1; } || echo "no Chromium: install the package 'chromium' to run the tests of pages"

test: check browser
	$(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not soak and not gpu and not bench"

soak: $(READY)
	$(TEST_ENV) $(BIN)/python -m pytest -m soak

bench: $(READY)
	$(BIN)/python benchmarks/run.py $(if $(QUICK),--quick)

docs: $(READY)
	$(BIN)/python tools/write_reference.py

clean:
	rm -rf .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# make train: install what training needs, then train the embedded default. make test: install the rest, then all checks.
# Needs python3 (3.11 or newer) with venv. Another interpreter: make train PYTHON=python3.12

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
# One more than two cores: while a test waits for a process or a deadline, another computes.
WORKERS ?= 3

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
PINS := $(VENV)/constraints.txt
SOURCES := pyproject.toml constraints.txt

# Small networks are faster on one thread, and one thread gives the same sums in every run.
# Processes that tests start read compiled modules, also where the environment says to write none.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false \
	MPLBACKEND=agg PYTHONDONTWRITEBYTECODE= HYPOTHESIS_PROFILE=ci

# An older CPU of the same kind: no wide vectors, on ARM no oneDNN either. Tests whose numbers depend on it.
ISA_ENV := ATEN_CPU_CAPABILITY=default DNNL_MAX_CPU_ISA=SSE41 \
	$(if $(filter aarch64 arm64,$(shell uname -m)),ASSAY_TEST_ONEDNN=off)
ISA_TESTS := tests/ops tests/engine tests/parts/critics tests/claims/test_estimators.py tests/methods/test_delethink.py \
	tests/decoding/test_sampling.py
ISA_PARTS := obeys and (credit- or objective-PolicyGradient or regularizer-)

# What `assay show` prints, kept while installing: the first time is then as fast as the second.
KEEP_SHEETS := $(BIN)/python -c 'from assay.cli.method_commands import keep_sheets; keep_sheets()' || true

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help train test test-all test-isa lint bench docs clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## */  make \1\t/p' Makefile | expand -t 18
	@echo '  Extra arguments go into ARGS, for instance: make train ARGS="grpo --task countdown --steps 50"'

train: $(VENV)/.ready-train  ## install, then train the embedded default from start to finish
	$(BIN)/assay train $(ARGS)

# mypy is one process: beside the tests it takes no core of its own. What it says comes last.
test: $(VENV)/.ready-test  ## install, then lint, types and every test
	$(BIN)/ruff check .
	@$(BIN)/mypy > $(VENV)/mypy.txt 2>&1 & types=$$!; \
		$(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS); tests=$$?; \
		wait $$types; typed=$$?; cat $(VENV)/mypy.txt; \
		test $$typed -eq 0 && exit $$tests

test-all: lint  ## the same, with every method in each of its worlds and more runs that are killed
	$(TEST_ENV) HYPOTHESIS_PROFILE=all $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --all-cases $(ARGS)

test-isa: $(VENV)/.ready-test  ## the numerical tests again, as an older CPU computes them
	$(TEST_ENV) $(ISA_ENV) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ISA_TESTS)
	$(TEST_ENV) $(ISA_ENV) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/parts/test_laws.py -k "$(ISA_PARTS)"

lint: $(VENV)/.ready-test  ## ruff on everything, mypy on the package
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.ready-test  ## install, then print our speed as ratios to the peers'
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/.ready-docs  ## install, then build the documentation into site/
	$(TEST_ENV) NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS)

clean:  ## remove everything that make made; runs/ stays
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp says: what this step installs was installed from the present pyproject.toml and constraints.txt.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Assay needs Python 3.11 or newer; say which one: make train PYTHON=/path/to/python3'; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The known-good torch where it can be had, else any supported one; the pins then name the one that is there.
$(VENV)/.ready-torch: constraints.txt | $(BIN)/python
	@echo 'Installing torch $(TORCH) into $(VENV) (once; a large download)'
	@$(PIP) torch==$(TORCH) || \
		{ echo 'torch $(TORCH) is not to be had here; taking another one'; $(PIP) 'torch>=2.6'; }
	@touch $@

$(PINS): constraints.txt $(VENV)/.ready-torch
	@version=$$($(BIN)/python -c 'from importlib.metadata import version; print(version("torch").split("+")[0])') && \
		sed "s/^torch==.*/torch==$$version/" constraints.txt > $@

$(VENV)/.ready-train: $(SOURCES) $(PINS)
	@echo 'Installing assay into $(VENV) (once)'
	@$(PIP) --constraint $(PINS) --editable '.[plots]'
	@$(KEEP_SHEETS)
	@touch $@

$(VENV)/.ready-test: $(SOURCES) $(PINS)
	@echo 'Installing assay with everything the tests use into $(VENV) (once)'
	@$(PIP) --constraint $(PINS) --editable '.[dev,control,data,language,peers,plots,scale]'
	@$(PIP) --constraint $(PINS) --editable '.[ray]' || echo 'ray could not be installed: its tests will be skipped'
	@$(PIP) --constraint $(PINS) --editable '.[tasks]' || \
		echo 'reasoning-gym could not be installed (it needs a C compiler): its tests will be skipped'
	@$(KEEP_SHEETS)
	@touch $@ $(VENV)/.ready-train

$(VENV)/.ready-docs: $(SOURCES) $(PINS)
	@echo 'Installing assay with what the documentation needs into $(VENV) (once)'
	@$(PIP) --constraint $(PINS) --editable '.[docs]'
	@touch $@

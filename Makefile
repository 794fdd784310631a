PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
JOBS   ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
TRACED := tests/answers tests/credit tests/training/test_step_metrics.py
.DEFAULT_GOAL := help

.PHONY: help demo test coverage test-engines test-trl test-verl test-browser test-slow test-gpu test-kernels torture lint docs check bench dist clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(STAMP)  ## adapt the embedded model to questions without answers; sets everything up first
	$(BIN)/scrl demo

test: $(STAMP)  ## the test suite; sets everything up first
	$(PYTEST) $(TRACED) --cov=src/scrl --cov-report=
	$(BIN)/python -m coverage report --include='*/scrl/answers/*,*/scrl/credit/*' --fail-under=98 --skip-covered -m
	$(PYTEST) $(TRACED:%=--ignore=%)

coverage: $(STAMP)  ## the lines that no test runs; tracing makes the suite half as slow again
	$(PYTEST) --cov=src/scrl --cov-report=term-missing:skip-covered

test-engines: test-trl test-verl  ## the tests against TRL and verl, each in an environment of its own

test-trl: .venv-trl/.installed  ## the tests against TRL
	.venv-trl/bin/python -m pytest tests/engines/test_trl_*.py tests/policy/test_trl_parity.py

test-verl: .venv-verl/.installed  ## the tests against verl
	.venv-verl/bin/python -m pytest tests/engines/test_verl_engine.py tests/engines/test_verl_settings.py

test-browser: $(STAMP)  ## the report's page in headless Chromium
	$(BIN)/python -m pytest -m browser tests/reporting

test-slow: $(STAMP)  ## tests that take minutes: the whole notebook, ten thousand requests to a server that fails
	$(BIN)/python -m pytest -m slow tests/test_notebook.py tests/lab/test_rollouts.py

test-gpu:  ## the tests that need a GPU, and Liger (pip install '.[gpu]')
	PYTHONPATH=src:$$PYTHONPATH $(PYTHON) -m pytest -W default -m gpu tests/gpu
	PYTHONPATH=src:$$PYTHONPATH $(PYTHON) -m pytest -W default tests/sampling/test_kernels.py

test-kernels: .venv-triton/.installed  ## the GPU kernels without a GPU: interpreted, and compiled for Hopper
	TRITON_INTERPRET=1 PYTHONPATH=.venv-triton $(BIN)/python -m pytest tests/sampling/test_kernels.py \
	  tests/sampling/test_kernel_builds.py tests/policy/test_token_scores.py

torture: $(STAMP)  ## 500 kills at random moments and at every file operation, 300 damaged run folders, hostile files; an hour or so
	OMP_NUM_THREADS=1 $(BIN)/python tests/training/kills.py 200
	for command in export rollouts reproduce; do OMP_NUM_THREADS=1 $(BIN)/python tests/training/kills.py 100 $$command || exit 1; done
	OMP_NUM_THREADS=1 $(BIN)/python tests/training/damage.py 300
	SCRL_TORTURE=1 $(PYTEST) tests/test_hostile_inputs.py tests/evaluation/test_benchmark_run.py tests/training/test_damaged_runs.py

lint: $(STAMP)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(STAMP)  ## the pages of docs/ as a site in site/
	$(BIN)/mkdocs build --strict  # not --quiet, which counts no warnings

check: lint docs test  ## lint, docs, test

bench: $(STAMP)  ## benchmarks that run on a laptop
	$(BIN)/python benchmarks/labelling.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/token_scores.py

dist: $(STAMP)  ## wheel and source archive
	$(BIN)/python -m build

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "scrl needs Python 3.11 or newer; point PYTHON at one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "installing into $(VENV), a minute or two …"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch  # first, so that its build is not chosen by others
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

# TRL brings datasets and more, which the package itself does not need.
.venv-trl/.installed: pyproject.toml constraints.txt
	test -x .venv-trl/bin/python || $(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip install --quiet -c constraints.txt torch
	.venv-trl/bin/python -m pip install --quiet -c constraints.txt -e '.[trl]' pytest hypothesis
	@touch .venv-trl/.installed

# On a CPU: verl's own dependencies include CUDA packages.
.venv-verl/.installed: pyproject.toml constraints.txt tests/engines/verl-requirements.txt
	test -x .venv-verl/bin/python || $(PYTHON) -m venv .venv-verl
	.venv-verl/bin/python -m pip install --quiet -c constraints.txt torch
	grep -v '^packaging==' constraints.txt > .venv-verl/constraints.txt
	.venv-verl/bin/python -m pip install --quiet -c .venv-verl/constraints.txt -r tests/engines/verl-requirements.txt \
	  -e '.[train]' pytest hypothesis
	.venv-verl/bin/python -m pip install --quiet --no-deps verl==0.9.1 TransferQueue==0.1.11
	@touch .venv-verl/.installed

# Triton's interpreter needs a NumPy that turns arrays of one number into numbers.
.venv-triton/.installed: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-deps --target .venv-triton triton==3.6.0 numpy==2.3.5
	@touch .venv-triton/.installed

clean:  ## delete everything that make has made
	rm -rf $(VENV) .venv-trl .venv-verl .venv-triton dist build site .pytest_cache .mypy_cache .ruff_cache .coverage

# make demo   the main job on embedded defaults          make test   the test suite
# make check  format, lint, types, docs and tests        make bench  the benchmarks
# make docs   the pages of docs/ as a site in site/
# make test-engines  the tests against TRL and verl, each in an environment of its own (test-trl, test-verl)
# make test-gpu      the tests that need a GPU
# make test-kernels  the GPU's kernels without one: interpreted, and compiled for Hopper
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
JOBS   ?= 2

.PHONY: demo test test-engines test-trl test-verl test-gpu test-kernels lint docs check bench dist clean

demo: $(STAMP)
	$(BIN)/scrl demo

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --cov=src/scrl --cov-report=term-missing:skip-covered
	$(BIN)/python -m coverage report --include='*/scrl/answers/*,*/scrl/credit/*' --fail-under=98 --format=total

test-engines: test-trl test-verl

test-trl: .venv-trl/.installed
	.venv-trl/bin/python -m pytest tests/engines/test_trl_engine.py tests/engines/test_trl_settings.py tests/policy/test_trl_parity.py

test-verl: .venv-verl/.installed
	.venv-verl/bin/python -m pytest tests/engines/test_verl_engine.py tests/engines/test_verl_settings.py

test-gpu:  # with the Python at hand, whose torch has to know the GPU
	PYTHONPATH=src $(PYTHON) -m pytest -W default -m gpu tests/gpu
	PYTHONPATH=src $(PYTHON) -m pytest -W default tests/sampling/test_kernels.py

test-kernels: .venv-triton/.installed
	TRITON_INTERPRET=1 PYTHONPATH=.venv-triton $(BIN)/python -m pytest tests/sampling/test_kernels.py tests/sampling/test_kernel_builds.py

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(STAMP)
	$(BIN)/mkdocs build --strict  # not --quiet, which counts no warnings

check: lint docs test

bench: $(STAMP)
	$(BIN)/python benchmarks/labelling.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/token_scores.py

dist: $(STAMP)
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

clean:
	rm -rf $(VENV) .venv-trl .venv-verl .venv-triton dist build site .pytest_cache .mypy_cache .ruff_cache .coverage

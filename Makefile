# make demo   the main job on embedded defaults          make test   the test suite
# make check  format, lint, types, docs and tests        make bench  the benchmarks
# make docs   the pages of docs/ as a site in site/
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
JOBS   ?= 2

.PHONY: demo test lint docs check bench dist clean

demo: $(STAMP)
	$(BIN)/scrl demo

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --cov=src/scrl --cov-report=term-missing:skip-covered
	$(BIN)/python -m coverage report --include='*/scrl/answers/*,*/scrl/credit/*' --fail-under=98 --format=total

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

clean:
	rm -rf $(VENV) dist build site .pytest_cache .mypy_cache .ruff_cache .coverage

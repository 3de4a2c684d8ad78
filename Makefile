# Every target sets up what it needs; repeated runs skip the set-up.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo test check bench clean

help:  ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.base  ## compare the methods on the embedded digits federation
	$(BIN)/fedpca demo

test: .venv/.dev check  ## lint, types, then the tests with coverage
	$(BIN)/python -m pytest --cov --cov-report=term-missing:skip-covered

check: .venv/.dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.base  ## measure workers, memory and the cost of a round, as ratios
	$(BIN)/python -m benchmarks

clean:  ## remove the virtual environment and caches, not the runs
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.base: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

.venv/.dev: .venv/.base
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# Every target sets up what it needs; repeated runs skip the set-up.
PYTHON ?= python3
BIN := .venv/bin
PEERS := flower pfl fluke fedlab
flower_package := flwr[simulation]==1.41.0
pfl_package := pfl==0.6.0
fluke_package := fluke-fl==0.8.1
fedlab_package := fedlab==1.3.0
cleanlab_package := cleanlab==2.9.0
AUDIT ?= runs/audit-study

.PHONY: help demo test check bench bench-peers bench-cleanlab clean

help:  ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.base  ## compare the methods on the embedded digits federation
	$(BIN)/fedpca demo

test: .venv/.dev check  ## lint, types, then the tests with coverage
	$(BIN)/python -m pytest -n auto --dist loadfile --cov --cov-report=term-missing:skip-covered

check: .venv/.dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.base  ## measure speed, memory and the cost of a round, as ratios
	$(BIN)/python -m benchmarks

bench-peers: .venv/.base $(PEERS:%=.venvs/%/.ready)  ## the speed beside other simulators, each in an environment of its own
	$(BIN)/python -m benchmarks speed --peers

bench-cleanlab: .venvs/cleanlab/.ready  ## cleanlab on the pooled data of `python -m studies.audit $(AUDIT)`
	.venvs/cleanlab/bin/python -m benchmarks.peers.cleanlab $(AUDIT)

clean:  ## remove the virtual environments and caches, not the runs
	rm -rf .venv .venvs .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.base: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

.venv/.dev: .venv/.base
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

.venvs/%/.ready: constraints.txt
	$(PYTHON) -m venv .venvs/$*
	.venvs/$*/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch '$($*_package)'
	@touch $@

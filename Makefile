# Two commands do everything: `make test` and `make reproduce`. Both set up .venv first, once.

PYTHON ?= python3
CORES ?= all
BIN := .venv/bin
KERNEL := $(wildcard src/qlocaladam/kernels/*.[ch])

# A process a core. One that has nothing left takes half of what another still has, so that what a file of tests sets up
# is set up once, or twice.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

NAMED := envs/requirements.txt envs/development.txt envs/benchmark.txt

.PHONY: help check test reproduce benchmark lint format pins clean

help:  ## this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

# Pinned requirements, then the package itself, editable, with its kernel compiled.
.venv/development: envs/requirements.txt envs/development.txt envs/constraints.txt pyproject.toml setup.py $(KERNEL)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r envs/development.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	touch $@

.venv/benchmark: .venv/development envs/benchmark.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r envs/benchmark.txt
	touch $@

test: .venv/development  ## set up, then run every test
	$(PYTEST)

check: lint  ## the linters, then the unit tests: what to run while changing something
	$(PYTEST) tests/unit

reproduce: .venv/development  ## set up, then rebuild every table, figure and number at the default scale
	$(BIN)/snakemake --cores $(CORES)

benchmark: .venv/benchmark  ## set up the peers, then measure side by side
	$(BIN)/python -m benchmarks

lint: .venv/development  ## ruff, mypy, snakefmt and Snakemake's own lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint

format: .venv/development  ## let ruff and snakefmt rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

pins:  ## renew the versions of all packages that no file names, as pip chooses them for an empty environment
	$(PYTHON) -m venv --clear .venv-pins
	grep -hv '^-' $(NAMED) | sed 's/^torch==/torch===/' > .venv-pins/named.txt
	.venv-pins/bin/python -m pip install --quiet --disable-pip-version-check packaging
	.venv-pins/bin/python -m pip install --quiet --disable-pip-version-check --dry-run --ignore-installed \
		--report .venv-pins/report.json -r .venv-pins/named.txt
	.venv-pins/bin/python .ci/pins.py .venv-pins/report.json
	rm -rf .venv-pins

clean:  ## remove everything that was set up or built
	rm -rf .venv build src/*.egg-info src/qlocaladam/kernels/*.so

# The one way in: everything that builds, runs or tests the program goes through here.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# The first Python that is new enough, looked up when it is needed (setting up may have to install one).
PYTHON ?= $(shell tools/find-python)
PIP_INSTALL = $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check
# Extra words for the program (make run ARGS="record --for 60s") or for pytest (make test ARGS="-k ring").
ARGS ?=
# What checks Python and what checks the page have nothing to do with each other, and neither keeps two cores busy. What
# each says is told when it is done.
SIDE_BY_SIDE = $(MAKE) --no-print-directory --jobs=2 --output-sync=target
# QUICK=1 takes the benchmarks' short road: same rows, shorter runs, a smaller synthetic recording.
QUICK ?=

.PHONY: help setup web run test test-vm machine lint lint-python lint-page test-page format bench soak score messages lock clean

help: ## what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: web ## put the program with its locked dependencies at .venv/bin/exhume

web: $(VENV)/.installed ## build the page of the browser into the program, if its sources changed
	@$(BIN)/python tools/page.py build

run: setup ## record this node (ARGS="..." passes other words to the program)
	@$(BIN)/exhume $(ARGS)

test: setup ## everything that has to pass: the linters, then the tests (ARGS="-k ring" goes to pytest)
	@$(SIDE_BY_SIDE) lint-python test-page
	@tools/system-packages test
	@tools/run-tests $(ARGS)

test-vm: $(VENV)/.installed-dev ## the tests that need a kernel with cgroup v2, in a virtual machine (ARGS="-k swap")
	@tools/system-packages vm
	@$(BIN)/pytest -m vm tests/vm $(ARGS)

machine: $(VENV)/.installed-dev ## boot a machine of the tests to try things in; needs root (ARGS="my.service" enables that unit there)
	@tools/system-packages test
	@PYTHONPATH=. $(BIN)/python tests/system/machines/boot_machine.py $(ARGS)

lint: setup ## what the next two check, side by side
	@$(SIDE_BY_SIDE) lint-python lint-page

lint-python: $(VENV)/.installed-dev ## ruff, mypy and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

lint-page: web ## the types and rules of the page
	@$(BIN)/python tools/page_types.py --check
	@$(BIN)/python tools/page.py lint

test-page: lint-page ## the same, then the unit tests of the page
	@$(BIN)/python tools/page.py test

format: $(VENV)/.installed-dev ## rewrite the code in the house style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.installed-dev ## measure the costs beside the usual tools, into bench/RESULTS.md (QUICK=1: a first look)
	@tools/system-packages test
	@$(BIN)/python -m bench.run $(if $(QUICK),--quick)

soak: $(VENV)/.installed-dev ## an hour at a large node's rate: what the memory does, into bench/SOAK.md (ARGS="--minutes 10 --idle")
	@tools/system-packages test
	@$(BIN)/python -m bench.soak $(ARGS)

score: $(VENV)/.installed-dev ## play the lab's scenarios by lot and judge the diagnosis, into bench/DIAGNOSIS.md (ARGS="--only user-hog")
	@tools/system-packages test
	@$(BIN)/exhume lab score -o bench/DIAGNOSIS.md $(ARGS)

messages: $(VENV)/.installed-dev ## compile the messages that container runtimes are asked with, after a change of their .proto
	@tools/cri-messages

lock: ## renew requirements.lock and requirements-dev.lock from pyproject.toml
	@tools/lock

clean: ## remove what was made here (recordings stay)
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis \
		web/node_modules src/exhume/present/web/static src/exhume/present/web/report
	@find src tests bench -type d -name __pycache__ -prune -exec rm -rf {} +

# The stamps make setting up free when nothing changed. The program is installed as a link to src/.
$(VENV)/.installed: requirements.lock pyproject.toml
	@tools/system-packages setup
	@echo "setting up $(VENV)"
	@$(BIN)/python -c 'import pip' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@$(PIP_INSTALL) --require-hashes -r requirements.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q src/exhume
	@touch $@

$(VENV)/.installed-dev: requirements-dev.lock $(VENV)/.installed
	@$(PIP_INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

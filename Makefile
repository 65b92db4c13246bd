# Builds, runs, checks and tests exhume; `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# Evaluated when used: setup may have to install a Python first.
PYTHON ?= $(shell tools/find-python)
PIP_INSTALL = $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check
# Extra arguments for exhume (make run ARGS="record --for 60s") or pytest (make test ARGS="-k ring").
ARGS ?=
# Runs independent targets in parallel and prints each one's output when it is done.
PARALLEL = $(MAKE) --no-print-directory --jobs=2 --output-sync=target
# QUICK=1 makes benchmarks shorter: same rows, shorter runs, a smaller synthetic recording.
QUICK ?=
# How long `make fuzz` takes, over all of its targets.
MINUTES ?= 10
# How often soak-faults kills the recorder.
KILLS ?= 200
# Where `make wheel` and `make deb` put what they build.
DIST ?= dist
# A directory with the locked dependencies as wheels, for `make deb` without a package index.
WHEELS ?=

.PHONY: help setup web run check test test-collect test-tree test-unit test-page test-vm test-kubernetes test-long test-lowest test-pythons test-ray fuzz machine lint lint-python lint-page format bench soak \
	soak-faults score messages share wheel deb docs release advisories lock clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: web ## install exhume and its locked dependencies into .venv

web: $(VENV)/.installed ## build the web page into the package, if its sources changed
	@$(BIN)/python tools/page.py build

run: setup ## record this node (ARGS="..." for other commands)
	@$(BIN)/exhume $(ARGS)

check: setup ## for every edit: linters and the unit tests that need neither root nor other programs
	@$(PARALLEL) lint-python test-unit

test: ## the whole gate: linters, then all tests (ARGS="-k ring" is passed to pytest)
	@tools/system-packages test & $(PARALLEL) setup $(VENV)/.installed-dev || { wait $$!; exit 1; }; wait $$!
	@$(PARALLEL) --jobs=3 $(if $(ARGS),,test-tree) lint-python test-page docs test-collect
	@tools/run-tests $(ARGS)

# Before the tests: next to these, debootstrap needs more than five minutes instead of one. What goes wrong is reported by
# the tests that boot the tree.
test-tree: $(VENV)/.installed-dev ## make the file system of the nspawn containers, once; needs root
	@[ "$$(id -u)" != 0 ] || PYTHONPATH=. $(BIN)/python -c \
		'from tests.system.machines.machine_tree import machine_tree; machine_tree()' >/dev/null 2>&1 || true

# pytest rewrites every module of the tests once: here next to others, or each worker of a fresh clone does it.
# After a failed import DuckDB's bindings print pages of leaked objects, which would hide the error.
test-collect: web $(VENV)/.installed-dev ## import all tests without running any
	@unset PYTHONDONTWRITEBYTECODE; output=$$($(BIN)/pytest -p no:schemathesis --collect-only -q 2>&1) || { grep -vE '^(nanobind: | - )' <<< "$$output" | tail -n 40; exit 1; }

test-unit: $(VENV)/.installed-dev ## the tests of `make check` (ARGS="-k ring" is passed to pytest)
	@tools/run-tests --unit $(ARGS)

test-page: lint-page ## lint-page, then the unit tests of the web page
	@$(BIN)/python tools/page.py test

test-vm: $(VENV)/.installed-dev ## the tests that need a kernel with cgroup v2, in a VM (ARGS="-k swap")
	@tools/system-packages vm
	@$(BIN)/pytest -m vm tests/system/vm $(ARGS)

test-kubernetes: setup $(VENV)/.installed-dev ## the tests on a real Kubernetes of one node, compiled once; needs root (ARGS="-k crash")
	@tools/system-packages kubernetes
	@$(BIN)/pytest -s --timeout=1800 -m kubernetes tests/system/kubernetes $(ARGS)

test-long: $(VENV)/.installed-dev ## the proofs that take minutes: cost next to perf, 20,000 zombies, 2,000 crafted programs, what each step frees, pipx, the page in Firefox
	@tools/system-packages long
	@$(BIN)/pytest -s -m long tests --ignore=tests/system/ray $(ARGS)

test-lowest: ## the unit tests with the lowest versions of direct dependencies (ARGS="-k ring")
	@tools/test-versions lowest $(ARGS)

test-pythons: ## the unit tests with Python 3.11 to 3.14, those that can be had (ARGS="-k ring")
	@tools/test-versions pythons $(ARGS)

test-ray: $(VENV)/.installed-dev ## failures of a real Ray as events; installs Ray into the cache of the tests, needs root
	@$(BIN)/pytest -s -m long tests/system/ray $(ARGS)

fuzz: $(VENV)/.installed-dev ## fuzz parsers of untrusted input, importers, recordings and the page for MINUTES (default 10) in all; another SEED tries other inputs
	@EXHUME_FUZZ_SECONDS=$$(( $(MINUTES) * 60 / 37 )) $(if $(SEED),EXHUME_FUZZ_SEED=$(SEED)) $(BIN)/pytest -q -s \
		--timeout=0 --hypothesis-profile fuzz tests/system/fuzz tests/store/test_store_fuzz.py \
		tests/interop/importers/test_import_fuzz.py $(ARGS)

machine: $(VENV)/.installed-dev ## boot an nspawn container of the tests to try things in; needs root (ARGS="my.service" enables a unit)
	@tools/system-packages test
	@PYTHONPATH=. $(BIN)/python tests/system/machines/boot_machine.py $(ARGS)

lint: setup ## all linters
	@$(PARALLEL) lint-python lint-page

lint-python: $(VENV)/.installed-dev ## ruff, mypy, import-linter, and whether the dashboards are fresh
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/grafana_dashboards.py --check

lint-page: web ## tsc and eslint on the web page
	@$(BIN)/python tools/page_types.py --check
	@$(BIN)/python tools/page.py lint

format: $(VENV)/.installed-dev ## reformat the code and apply automatic fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.installed-dev ## compare costs with the usual tools, into bench/RESULTS.md (QUICK=1: shorter, not comparable)
	@tools/system-packages bench
	@$(BIN)/python -m bench.run $(if $(QUICK),--quick)

soak: $(VENV)/.installed-dev ## record for two hours at a large node's rate: memory, open files and losses into bench/SOAK.md (ARGS="--minutes 10 --idle")
	@tools/system-packages test
	@$(BIN)/python -m bench.soak $(ARGS)

soak-faults: $(VENV)/.installed-dev ## kill the recorder 200 times at random, also while it seals, and hold it for 30 s (KILLS=1000)
	@EXHUME_KILLS=$(KILLS) EXHUME_HELD_S=30 $(BIN)/pytest -s tests/system/faults/test_fault_kills.py \
		tests/system/faults/test_fault_clocks.py $(ARGS)

score: $(VENV)/.installed-dev ## run randomised lab scenarios and score the diagnosis, into bench/DIAGNOSIS.md (ARGS="--only user-hog")
	@tools/system-packages test
	@$(BIN)/exhume lab score --noise idle half oversubscribed -o bench/DIAGNOSIS.md $(ARGS)

messages: $(VENV)/.installed-dev ## compile the CRI messages, after a change of their .proto
	@tools/cri-messages

share: $(VENV)/.installed ## generate man pages and shell completions from the parser into share/
	@$(BIN)/python tools/shell_files.py

wheel: web share ## build the wheel, with the page inside, into dist/ (DIST=directory)
	@$(BIN)/python -m hatchling build --target wheel --directory $(DIST)

deb: wheel ## build a package for this Debian or Ubuntu from the wheel, into dist/ (WHEELS=directory has the dependencies)
	@WHEELS=$(WHEELS) tools/deb "$$(ls -t $(DIST)/exhume-*.whl | head -1)" $(DIST)

docs: $(VENV)/.installed-docs ## build the documentation as a site into build/site, and check all links in it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@$(BIN)/python tools/docs_site.py build/site

release: setup build/release-venv/.installed ## build a release into dist/, twice: wheel, sources, parts, licences, checksums (DRAFT=1); with IMAGE_BASE=python:3.13-slim-bookworm the image too
	@$(BIN)/python tools/release.py $(if $(DRAFT),--draft) $(if $(IMAGE_BASE),--image-base $(IMAGE_BASE))

advisories: $(VENV)/.installed ## check the locked packages against an advisory database (needs the network)
	@tools/advisories

lock: ## update requirements*.lock from pyproject.toml (UPGRADE= keeps the versions that are there)
	@tools/lock

clean: ## remove build products (recordings stay)
	@rm -rf $(VENV) build dist share .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis \
		web/node_modules src/exhume/present/web/static src/exhume/present/web/report
	@find src tests bench -type d -name __pycache__ -prune -exec rm -rf {} +

# Stamp files make setup free when nothing changed. The package is installed in editable mode.
$(VENV)/.installed: requirements.lock pyproject.toml
	@tools/system-packages setup
	@echo "setting up $(VENV), in about a minute"
	@# Python's own copy of setuptools is old, and nothing that runs needs it.
	@$(BIN)/python -c 'import pip' 2>/dev/null || { $(PYTHON) -m venv --clear $(VENV) && \
		$(BIN)/python -m pip uninstall --quiet --quiet --disable-pip-version-check --yes setuptools; }
	@$(PIP_INSTALL) --require-hashes -r requirements.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q src/exhume
	@touch $@

$(VENV)/.installed-dev: requirements-dev.lock $(VENV)/.installed
	@$(PIP_INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

$(VENV)/.installed-docs: requirements-docs.lock $(VENV)/.installed-dev
	@$(PIP_INSTALL) --require-hashes -r requirements-docs.lock
	@touch $@

# Apart: what describes a release has no part in it.
build/release-venv/.installed: requirements-release.lock $(VENV)/.installed
	@$(BIN)/python -m venv --clear build/release-venv
	@build/release-venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --require-hashes -r requirements-release.lock
	@touch $@

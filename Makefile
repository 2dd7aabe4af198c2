# `make repro` and `make test` need Python 3.11+, git and make; they set up whatever is missing.

# An active environment is used as it is; otherwise .venv is made here.
ACTIVE := $(or $(VIRTUAL_ENV),$(CONDA_PREFIX))
BIN := $(if $(ACTIVE),$(ACTIVE),$(CURDIR)/.venv)/bin
# Stages run as `python -m stages.<name>`: the environment's python must come first.
RUN := PATH="$(BIN):$$PATH"
INSTALL := pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
SLOW_INSTALL := installing pinned packages (3.3 GB at first, CUDA included), a few minutes
TEST_PYTHON := import sys; sys.exit(sys.version_info < (3, 11))
# True when pjepa and every package it asks for are installed in the active environment.
TEST_PACKAGES := from importlib.metadata import requires, version; \
	from packaging.requirements import Requirement; \
	needs = map(Requirement, requires("pjepa")); \
	[version(n.name) for n in needs if not n.marker or n.marker.evaluate({"extra": "dev"})]

.PHONY: help repro test fast proof setup environment repository clean-env

help:
	@echo "make repro      set up, then run the pipeline (dvc repro)"
	@echo "make test       set up, then lint, types and every test"
	@echo "make fast       set up, then the tests that take seconds"
	@echo "make proof      set up, then the proof: 5 seeds and the shuffled world"
	@echo "make clean-env  remove .venv"

# DVC cannot see data outside the project: a list that is stale stops here.
repro: setup
	@$(RUN) pjepa data scan --check
	@$(RUN) dvc repro

test: setup
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@$(RUN) python -m pytest

fast: setup
	@$(RUN) python -m pytest -m 'not slow'

proof: setup
	@$(RUN) python -m benchmarks.proof

setup: environment repository

ifeq ($(ACTIVE),)
environment: .venv/.installed
else
environment:
	@"$(BIN)/python" -c '$(TEST_PYTHON)' 2>/dev/null || \
		{ echo "$(ACTIVE) is active but has no Python 3.11 or newer; deactivate it"; exit 1; }
	@$(RUN) python -P -c '$(TEST_PACKAGES)' 2>/dev/null || \
		{ echo "$(ACTIVE): $(SLOW_INSTALL)"; $(RUN) python -m $(INSTALL); }
endif

# The pins were made on 3.11, so it is tried first.
.venv/.installed: pyproject.toml constraints.txt
	@if [ ! -x .venv/bin/python ]; then \
		for python in python3.11 python3.12 python3.13 python3; do \
			$$python -c '$(TEST_PYTHON)' 2>/dev/null && break; python=; \
		done; \
		[ -n "$$python" ] || { echo "Python 3.11 or newer is needed; none was found"; exit 1; }; \
		echo "making .venv with $$python"; \
		$$python -m venv .venv || \
			{ rm -rf .venv; echo "$$python cannot make .venv (on Debian: python3-venv)"; exit 1; }; \
	fi
	@echo ".venv: $(SLOW_INSTALL)"
	@$(RUN) python -m $(INSTALL)
	@touch $@

# DVC needs a repository with a commit: an unpacked archive gets one.
repository: environment
	@[ -e .git ] || { git init --quiet && echo "git: new repository"; }
	@[ -e .dvc/config ] || $(RUN) dvc init --quiet --force
	@git rev-parse --quiet --verify HEAD >/dev/null || { \
		{ git config user.name || git config user.name pjepa; } >/dev/null && \
		{ git config user.email || git config user.email pjepa@localhost; } >/dev/null && \
		git add --all && git commit --quiet --no-gpg-sign --message Baseline && \
		echo "git: committed the files as a baseline"; }

clean-env:
	rm -rf .venv

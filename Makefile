# `make repro` and `make test` need Python 3.11+, git and make; they set up whatever is missing.

# An active environment is used as it is; otherwise .venv is made here.
ACTIVE := $(or $(VIRTUAL_ENV),$(CONDA_PREFIX))
BIN := $(if $(ACTIVE),$(ACTIVE),$(CURDIR)/.venv)/bin
# Stages run as `python -m stages.<name>`: the environment's python must come first.
RUN := PATH="$(BIN):$$PATH"
INSTALL := pip install --quiet --disable-pip-version-check -c constraints.txt
SLOW_INSTALL := installing pinned packages (3.3 GB at first, CUDA included), a few minutes
# A process per core, one thread each: more threads only get in each other's way.
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE python -m pytest -n auto --dist loadfile \
	--no-loadscope-reorder
TEST_PYTHON := import sys; sys.exit(sys.version_info < (3, 11))
# True when pjepa and every package it asks for (with the extras EXTRAS) are in the environment.
TEST_PACKAGES := import sys; from importlib.metadata import requires, version; \
	from packaging.requirements import Requirement; extras = sys.argv[1:] or [""]; \
	asked = [n for n in map(Requirement, requires("pjepa")) \
		if not n.marker or any(n.marker.evaluate({"extra": e}) for e in extras)]; \
	[version(n.name) for n in asked]
EXTRAS := dev assembly101 docs hf ray s3

.PHONY: help repro test fast proof docs setup environment development repository clean-env

help:
	@echo "make repro      set up, then run the pipeline (dvc repro)"
	@echo "make test       set up, then lint, types and every test"
	@echo "make fast       set up, then the tests that take seconds"
	@echo "make proof      set up, then the proof: 5 seeds and the shuffled world"
	@echo "make docs       set up, then build the docs site into site/ (strict)"
	@echo "make clean-env  remove .venv"

# DVC cannot see data outside the project: a list that is stale stops here.
repro: setup
	@$(RUN) pjepa data scan --check
	@$(RUN) dvc repro
	@$(RUN) pjepa summary

test: development repository
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@$(RUN) $(PYTEST)

fast: development repository
	@$(RUN) $(PYTEST) -m 'not slow and not sweep'

proof: setup
	@$(RUN) python -m benchmarks.proof

# Reference pages come from the code: params from pydantic, commands from typer.
docs: development
	@$(RUN) python docs/generate.py
	@$(RUN) NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet
	@echo "open site/index.html"

setup: environment repository

# `environment` has what the pipeline and the tools run; `development` adds what tests and docs need.
ifeq ($(ACTIVE),)
environment: .venv/.installed
development: .venv/.installed-dev
else
environment:
	@$(CHECK_ACTIVE)
	@$(RUN) python -P -c '$(TEST_PACKAGES)' 2>/dev/null || \
		{ echo "$(ACTIVE): $(SLOW_INSTALL)"; $(RUN) python -m $(INSTALL) -e .; }
development:
	@$(CHECK_ACTIVE)
	@$(RUN) python -P -c '$(TEST_PACKAGES)' $(EXTRAS) 2>/dev/null || \
		{ echo "$(ACTIVE): $(SLOW_INSTALL)"; $(RUN) python -m $(INSTALL) -e '.[dev]'; }
endif
CHECK_ACTIVE = "$(BIN)/python" -c '$(TEST_PYTHON)' 2>/dev/null || \
	{ echo "$(ACTIVE) is active but has no Python 3.11 or newer; deactivate it"; exit 1; }

# The pins were made on 3.11, so it is tried first.
.venv/bin/python:
	@for python in python3.11 python3.12 python3.13 python3; do \
		$$python -c '$(TEST_PYTHON)' 2>/dev/null && break; python=; \
	done; \
	[ -n "$$python" ] || { echo "Python 3.11 or newer is needed; none was found"; exit 1; }; \
	echo "making .venv with $$python"; \
	$$python -m venv .venv || \
		{ rm -rf .venv; echo "$$python cannot make .venv (on Debian: python3-venv)"; exit 1; }

.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo ".venv: $(SLOW_INSTALL)"
	@$(RUN) python -m $(INSTALL) -e .
	@touch $@

.venv/.installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	@echo ".venv: $(SLOW_INSTALL)"
	@$(RUN) python -m $(INSTALL) -e '.[dev]'
	@touch .venv/.installed $@

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

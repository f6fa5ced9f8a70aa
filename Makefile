# Two commands on a fresh machine, each doing its own set-up in .venv:
#   make evidence   the main job: the notebooks on a real model, archived under evidence/
#   make test       lint, types, import rules, notebook pairs, tests
# One for a machine with time: make acceptance runs the measured claims in full, which takes hours.
# Needs Python 3.11 to 3.13 and GNU make. Settings, given as `make test NAME=value`:
#   PYTHON       the interpreter that .venv is made from
#   TORCH_INDEX  an extra package index, such as the one that holds CPU builds of torch
#   PARAMETERS   the investigation that `make evidence` runs; RUN_ARGS is handed on to `fusionkit run`
#   PYTEST_ARGS, ACCEPTANCE_ARGS  arguments of pytest; LAB_ARGS arguments of JupyterLab

PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
PARAMETERS ?= parameters/flux-tiny.yaml
RUN_ARGS ?=
PYTEST_ARGS ?= -n 2 --dist loadfile --no-loadscope-reorder
ACCEPTANCE_ARGS ?= -v
LAB_ARGS ?=

RUN_EXTRAS := notebooks,models
DEV_EXTRAS := notebooks,models,dev
BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -c constraints.txt

# An installed torch_npu must not load itself into every `import torch`; fusionkit loads it when a target asks for it.
export TORCH_DEVICE_BACKEND_AUTOLOAD := 0
evidence test acceptance: export HF_HUB_OFFLINE := 1
# A hundred processes load the same modules: their bytecode is kept, whatever the environment says.
test acceptance: export PYTHONDONTWRITEBYTECODE :=

.PHONY: help evidence test acceptance lab notebooks clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

evidence: $(VENV)/.installed-run
	$(BIN)/fusionkit run $(PARAMETERS) $(RUN_ARGS)

test: $(VENV)/.installed-dev
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy --strict fusionkit
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/pair_notebooks.py --check
	$(BIN)/python -m pytest --durations=20 $(PYTEST_ARGS)

acceptance: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m acceptance $(ACCEPTANCE_ARGS)

lab: $(VENV)/.installed-run
	$(BIN)/python -m jupyterlab --LabApp.default_url=/lab/tree/notebooks $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB_ARGS)

notebooks: $(VENV)/.installed-dev
	$(BIN)/python tools/pair_notebooks.py

# What make and the tools wrote; never evidence/.
clean:
	rm -rf $(VENV) build dist fusionkit.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find fusionkit tests benchmarks tools notebooks -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo 'fusionkit needs Python 3.11 to 3.13, and "$(PYTHON)" is not that; name one with PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo 'cannot make $(VENV); on Debian and Ubuntu install the package python3-venv' >&2; exit 1; }

$(VENV)/.installed-run: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing $(RUN_EXTRAS) into $(VENV): a few minutes, about 2 GB'
	@$(INSTALL) -e '.[$(RUN_EXTRAS)]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing $(DEV_EXTRAS) into $(VENV): a few minutes, about 2 GB'
	@$(INSTALL) -e '.[$(DEV_EXTRAS)]'
	@touch $@ $(VENV)/.installed-run

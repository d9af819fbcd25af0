# `make repro` and `make test` are all the set-up there is. EXTRAS=cuda12,dev for a driver of CUDA 12.
PYTHON ?= python3
EXTRAS ?= cuda13,dev

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
comma := ,
INSTALLED := $(VENV)/installed-$(subst $(comma),-,$(EXTRAS))

export PATH := $(BIN):$(PATH)

.PHONY: repro test test-more lint ui install gpu-check gpu-wheels

repro: install
	$(BIN)/dvc repro
	@echo "Report:    $(CURDIR)/artifacts/report/report.html (and report.md)"
	@echo "MLflow UI: make ui"

# What every number stands on: kernels, environments, training, learning, one hash on every machine.
MORE := tests/stages tests/device tests/adapters tests/speed
PYTEST = LOCKSTEP_OPTIMIZATION=-O1 $(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile

test: install
	$(PYTEST) $(MORE:%=--ignore=%)

# The commands with DVC, Hydra, MLflow and the report, what a GPU asks for, environments of other libraries, speed.
test-more: install
	$(PYTEST) $(MORE)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

ui: install
	@$(BIN)/python -m pipeline.tracking ui

# On a machine with a GPU and a CUDA image's torch, CuPy, NumPy, pytest and safetensors: no virtual environment is made.
OUT ?= build/gpu-check
WHEELS ?= gpu-wheels

gpu-check: $(WHEELS)
	@$(PYTHON) -m benchmarks.gpu_check --out $(OUT)

# What such an image lacks, for the device's machine too where that has no network; kept where it is there already.
gpu-wheels:
	@test -d build/gpu-wheels/hydra || PYTHONPATH= $(PYTHON) -m pip install -qq --disable-pip-version-check \
		--target build/gpu-wheels -c constraints.txt hydra-core omegaconf rich filelock || \
		echo "gpu-check: no network: hydra-core, omegaconf, rich and filelock must be installed already"

install: $(INSTALLED)
	@test -e .git || test -e .dvc/config.local || $(BIN)/dvc config --local core.no_scm true

# pip runs again only when what it installs has changed.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "make: wanted Python 3.11 or later; got $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12" >&2; exit 2; }
	@test -x $(BIN)/python || { echo "Creating $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing Lockstep [$(EXTRAS)] into $(VENV): some minutes the first time"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@for compiler in $$CXX g++ clang++ c++; do command -v $$compiler >/dev/null && exit; done; \
		echo "No C++ compiler found: installing the ziglang wheel (411 MB), which holds one"; \
		$(BIN)/python -m pip install -qq --disable-pip-version-check ziglang
	@rm -f $(VENV)/installed-* && touch $@

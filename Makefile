# make demo    trains a classifier on handwritten digits with gradients gradof derived
# make test    the whole test suite        make check   ruff and mypy --strict
# make bench   the benchmarks              make gpu     GPU tests and benchmarks, on a GPU machine
# demo, test, check and bench set up .venv themselves the first time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.gradof-installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench gpu clean

help:
	@sed -n 's/^# //p' Makefile | head -4

setup: $(READY)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Installed again only when what is installed could have changed.
$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-e '.[torch,examples,dev]' -c constraints.txt
	@touch $@

demo: $(READY)
	@$(BIN)/python examples/digits.py

test: $(READY)
	$(BIN)/python -m pytest -n 2

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy

# The peers are installed for it alone: tests need none of them.
bench: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-e '.[torch,examples,dev,bench]' -c constraints.txt
	@$(BIN)/python benchmarks/cpu.py

# Runs with the machine's own Python, because the torch and triton that fit a GPU are its owner's
# choice. It fails where nothing ran: no device, or no test marked gpu.
gpu:
	@$(PYTHON) -c "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 'make gpu: torch sees no CUDA device')"
	@PYTHONPATH=. $(PYTHON) -m pytest -m gpu; code=$$?; \
	if [ $$code = 5 ]; then echo "make gpu: no test is marked gpu, nothing ran" >&2; exit 1; fi; \
	[ $$code = 0 ] || exit $$code
	@set -e; for file in benchmarks/gpu_*.py; do \
		if [ -e "$$file" ]; then echo "== $$file"; PYTHONPATH=. $(PYTHON) "$$file"; \
		else echo "make gpu: there is no benchmarks/gpu_*.py, no benchmark ran"; fi; \
	done

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

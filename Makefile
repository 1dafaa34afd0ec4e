# make demo    trains a classifier on handwritten digits with gradients gradof derived
# make test    the whole test suite        make check   ruff and mypy --strict
# make test-fast  a minute of it, while developing
# make long    what make test tries a sample of, whole: half an hour
# make programs  all sequences of calls and training loops beside eager, and long runs
# make bench   the benchmarks              make gpu     GPU tests and benchmarks, on a GPU machine
# make fuzz MINUTES=10  random programs to second gradients, torch's and numpy's
# make sequences MINUTES=10  random functions with state, and what happens between their calls
# make autograd  HIPS autograd's own tests and examples, with its import replaced
# make lifelines  fits of lifelines with its autograd import replaced, beside autograd's
# make models  every architecture of transformers, compared with eager
# make packages  modules and functions of some sixty other packages, compared with eager
# make suites SUITES="zuko"  packages' own tests: what they call, compared with eager
# make explore-test  pages in a headless Chromium; make screenshots  the pictures of docs/
# make docs    the documentation as a site with a search, into build/site
# make gpu-check  kernels for a GPU without one, on the oldest and the newest torch and triton
# All but gpu set up .venv themselves the first time.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.gradof-installed
DOCS_READY := $(VENV)/.gradof-docs
DOCS := mkdocs-material mkdocstrings-python

.DEFAULT_GOAL := help
.PHONY: docs explore-test explore-vendor screenshots help setup demo test test-fast long programs fuzz sequences check bench autograd lifelines models packages suites gpu gpu-check \
	gpu-dry-run clean

help:
	@sed -n 's/^# //p' Makefile | head -16

setup: $(READY)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Installed again only when what is installed could have changed. Python compiles what it imports;
# pip would compile all of it, which is nearly half of its time.
$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check \
		-e '.[torch,examples,dev]' -c constraints.txt
	@touch $@

# Once: from then on the site is built without a network.
$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(DOCS) -c constraints.txt
	@touch $@

demo: $(READY)
	@$(BIN)/python examples/digits.py

# Each worker takes half, so that what a module sets up is set up once, and then from the other.
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal --sample

# While developing: the IR, passes, the transform, the house's rules, and a few of everything else.
test-fast: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal tests/ir tests/passes tests/autodiff tests/errors \
		tests/repo/test_layers.py tests/repo/test_sizes.py tests/repo/test_architecture.py \
		tests/cli/test_cli.py tests/codegen/test_fusion.py tests/codegen/test_tiles.py \
		tests/runtime/test_torch_autograd.py tests/runtime/test_numpy.py tests/testing/test_harness.py

long: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not models and not programs and not browser"

# Minutes: every sequence of tests/programs, a thousand shapes, a hundred thousand calls.
programs: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/programs -m "programs or not programs"

MINUTES ?= 10
SEED ?= 0
fuzz: $(READY)
	$(BIN)/gradof fuzz --library torch --minutes $(MINUTES) --seed $(SEED) --reached
	$(BIN)/gradof fuzz --library numpy --minutes $(MINUTES) --seed $(SEED) --reached

sequences: $(READY)
	$(BIN)/python -m tests.programs.search torch --minutes $(MINUTES) --seed $(SEED)
	$(BIN)/python -m tests.programs.search numpy --minutes $(MINUTES) --seed $(SEED)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy

# The peers are installed for it alone: tests need none of them. ARGS=--write puts the figures into
# docs/performance.md.
bench: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-e '.[torch,examples,dev,bench]' -c constraints.txt
	@$(BIN)/python benchmarks/cpu.py $(ARGS)

# An hour on two processors. Its source distribution is downloaded with pip, into build/autograd.
autograd: $(READY)
	@$(BIN)/python benchmarks/autograd_suite.py $(ARGS)
	@$(BIN)/python benchmarks/autograd_examples.py

# Fits of survival models. ARGS="--write" puts the table into docs/performance.md; ARGS=--tests runs lifelines' tests, too.
lifelines: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pandas>=2.1,<3' formulaic matplotlib autograd flaky dill -c constraints.txt
	@$(BIN)/python benchmarks/lifelines_fits.py $(ARGS)

# About half an hour on two processors. Writes docs/models.md; MODELS="gpt2 BertForMaskedLM" runs these alone.
models: $(READY)
	@$(BIN)/python -m tests.models.survey --jobs 2 $(MODELS)
	$(BIN)/python -m pytest -m models tests/runtime/test_dynamo_models.py tests/models/test_configurations.py

# An hour on two processors. Only wheels, and nothing that could replace the installed torch.
# PACKAGES="e3tools torchsde" runs these alone; lines of all objects are kept in build/packages.
packages: $(READY)
	@mkdir -p build/packages
	@get() { $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--only-binary=:all: --target "$$@"; }; \
	test -d build/packages-needs || get build/packages-needs \
		$$(sed -n 's/^needs //p' tests/packages/chosen.txt); \
	for p in $$(grep -v '^#\|^needs' tests/packages/chosen.txt); do \
		test -d build/packages/$${p%%==*} || get build/packages/$${p%%==*} $$p; \
	done
	@PYTHONPATH=.:build/packages-needs $(BIN)/python -m tests.packages.survey --at build/packages $(PACKAGES)

# SUITES="nflows gpytorch=test": their source archives' tests, and where they are. What they need comes from PYTHONPATH.
# SUITES="--numpy scikit-fuzzy=skfuzzy": packages of functions of arrays.
suites: $(READY)
	@$(BIN)/python -m tests.packages.suites --at build/suites $(SUITES)

explore-test screenshots: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[browser]' -c constraints.txt
	$(if $(filter screenshots,$@),PYTHONPATH=. $(BIN)/python tools/screenshots.py,\
		$(BIN)/python -m pytest -m browser tests/explore)

# Warnings as errors, which --quiet would hide from mkdocs itself. ARGS=--outside asks the links to
# other sites, too. Every code block of it runs in the tests.
docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean --site-dir build/site
	@$(BIN)/python tools/check_docs.py $(ARGS)

# What the page draws with, bundled anew from its packages; see tools/explore-vendor/package.json.
explore-vendor:
	cd tools/explore-vendor && npm install --no-audit --no-fund && npm run build

# Runs with the machine's own Python, because the torch and triton that fit a GPU are its owner's
# choice. It fails where there is no GPU. STEPS="quick tests" names some of its steps; OUT=FOLDER is
# where results go (build/gpu).
gpu:
	@PYTHONPATH=. $(PYTHON) benchmarks/gpu_session.py $(STEPS) $(if $(OUT),--out $(OUT))

# What can be known of a GPU without one: bytes, launches, registers, spills and widths of loads of
# the benchmark's workloads, then the tests in triton's interpreter; on the installed torch and
# triton, and on the oldest that are supported, in a CUDA build of several gigabytes. Output is kept
# in build/gpu-check.
OLDEST := build/gpu-env
KERNEL_TESTS := tests/runtime/test_gpu_interpreted.py tests/runtime/test_triton_backend.py \
	tests/runtime/test_triton_attention.py tests/tracer/test_cuda_traces.py \
	tests/codegen/test_triton.py tests/codegen/test_triton_ops.py tests/codegen/test_triton_tune.py \
	tests/codegen/test_triton_index.py tests/codegen/test_attention.py tests/codegen/test_launchers.py \
	tests/cli/test_export_triton.py tests/benchmarks/test_gpu.py
$(OLDEST)/.installed: constraints-gpu.txt
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check torch triton numpy sympy \
		networkx click rich scipy llvmlite platformdirs pytest pytest-xdist hypothesis expecttest \
		-c constraints-gpu.txt
	@touch $@

gpu-check: $(READY) $(OLDEST)/.installed
	@mkdir -p build/gpu-check
	@set -e -o pipefail; for env in $(VENV) $(OLDEST); do \
		run="env PYTHONPATH=. $$env/bin/python"; to=build/gpu-check/$$(basename $$env).txt; \
		{ $$run -c "import torch, triton; print('torch', torch.__version__, 'triton', triton.__version__)"; \
		  $$run benchmarks/gpu_bytes.py; $$run benchmarks/gpu_compiled.py; \
		  $$run -m pytest -q -p no:cacheprovider -n 2 $(KERNEL_TESTS); } 2>&1 | tee $$to; \
	done

# The same benchmark without a GPU: tiny arrays, triton's interpreter, no figure of a GPU.
gpu-dry-run: $(READY)
	@$(BIN)/python benchmarks/gpu.py --dry-run

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

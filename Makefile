# The front door: each target is one or two commands that can be typed without it. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
DESTDIR ?=
ARGS ?=
PEERS ?= torch==2.13.0 numpy
# Whose wheel has the newest oneDNN on PyPI that runs on OpenMP, 3.6.2; nothing else of it is used.
PEERS_ONEDNN ?= paddlepaddle==3.3.1

.PHONY: build train test test-convergence test-models python-env docs site-env bench bench-peers setup format lint cuda-targets install deb wheel asan tsan fuzz reliability coverage abi-update clean help

# The first build is for this machine, as pip's is, in two thirds of the time. `make test` and `make deb` compile every variant.
build: VARIANTS = $(if $(wildcard build/CMakeCache.txt),,-DTIGON_CPU_VARIANTS=native)
build: CUDA = $(if $(call cached,TIGON_CUDA_QUICK:BOOL=ON),-DTIGON_CUDA=AUTO -DTIGON_CUDA_QUICK=OFF)
build: configure ## Build build/tigon and build/libtigon.so for this machine (the default)
	@cmake --build build -j $(JOBS) --target tigon_shared tigon_cli

train: setup-build-train build ## Train a small Llama: make train ARGS="--steps 50"
	@build/tigon train $(ARGS)

test: setup-build-test ## Build and run every test, lint, format and sanitizers
	@$(MAKE) -j 2 build-all python-env site-env # one waits for the network while the other compiles
	@ctest --preset release -j $(JOBS) $(ARGS)

# The tests with a stand-in driver launch CUDA kernels, so that these are compiled without a GPU, too: quickly, as none of them runs.
# `make` leaves them out again.
.PHONY: build-all
build-all: VARIANTS = -DTIGON_CPU_VARIANTS=all
build-all: CUDA = $(if $(or $(TIGON_CUDA),$(call cached,TIGON_CUDA:STRING=ON),$(call lacks,nvcc)),,\
  -DTIGON_CUDA=ON $(if $(shell nvidia-smi -L 2>/dev/null),,-DTIGON_CUDA_QUICK=ON))
build-all: configure
	@cmake --build build -j $(JOBS)

bench: setup-build-bench build ## Measure every op against the memory's speed: make bench ARGS=rms_norm
	@build/tigon bench $(ARGS)

bench-peers: setup-build-bench-peers configure ## PyTorch and oneDNN beside it, on the same cases: make bench-peers ARGS="--op rope"
	@cmake --build build -j $(JOBS) --target tigon_bench tigon_shared
	@build/peers/bin/python -c 'import torch, numpy' 2>/dev/null || { rm -rf build/peers && python3 -m venv build/peers && \
	  build/peers/bin/pip install --quiet $(PEERS); }
	@ls build/peers/lib/python*/site-packages/paddle/libs/libdnnl.so.3 >/dev/null 2>&1 || \
	  build/peers/bin/pip install --quiet --no-deps $(PEERS_ONEDNN) || true # without it oneDNN is left out, which it says
	@build/peers/bin/python bench/peers_cpu.py $(ARGS)

test-convergence: setup-build-test build python-env ## Train stock and patched models of every family side by side
	@tools/test-python convergence

test-models: setup-build-test build python-env ## Stock against patched, every model family: make test-models ARGS="llama -v"
	@tools/test-python survey $(ARGS)

# Made anew when what the tests want changes.
python-env: setup-test build/python/done ## PyTorch and its kin for the Python tests, in build/python
build/python/done: tests/python/requirements.txt
	@rm -rf build/python && python3 -m venv build/python
	@build/python/bin/pip install --quiet --disable-pip-version-check -r tests/python/requirements.txt
	@touch $@

docs: site-env ## The page of documentation: build/site/index.html
	@tools/docs && echo "build/site/index.html"

site-env: setup-docs build/site-env/done
build/site-env/done: tools/site/requirements.txt
	@rm -rf build/site-env && python3 -m venv build/site-env
	@build/site-env/bin/pip install --quiet --disable-pip-version-check -r tools/site/requirements.txt
	@touch $@

format: setup-test ## Format the sources
	@tools/format

lint: setup-build-test configure ## clang-tidy, cppcheck, the rule on the length of files
	@tools/check-file-length
	@tools/lint

cuda-targets: setup-build ## Compile the CUDA kernels for other GPUs than the default build: make cuda-targets ARGS="80;100;120"
	@tools/check-cuda-targets $(if $(ARGS),"$(ARGS)")

install: build ## Install: make install PREFIX=/usr/local DESTDIR=
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

deb: setup-build-deb ## Debian packages in build/deb
	@tools/deb

wheel: setup-build ## The wheel for others, in build/dist, with kernels for all GPUs: takes twenty minutes and more
	@tools/wheel $(ARGS)

asan: setup-build-test ## The quick tests with AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/sanitizers asan

tsan: setup-build-test-tsan ## The quick tests with ThreadSanitizer
	@tools/sanitizers tsan

fuzz: setup-build-test-tsan ## libFuzzer on a target of tests/fuzz: make fuzz ARGS="tokenizer -max_total_time=600"
	@tools/fuzz $(ARGS)

reliability: setup-build-test-tsan configure ## Run what docs/reliability.md reports, and write it: make reliability ARGS="values api"
	@cmake --build build -j $(JOBS)
	@tools/reliability $(ARGS)

coverage: setup-build-test-coverage ## Line and branch coverage of the library
	@tools/coverage

abi-update: build ## Record the ABI anew, after a change that was meant
	@tools/abi update

setup: setup-build-train-test ## Install what building, training and testing need (Debian)

clean: ## Remove build/
	@rm -rf build

help: ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

cached = $(shell grep -s '^$(1)$$' build/CMakeCache.txt)
lacks = $(shell PATH=$$PATH:/usr/local/cuda/bin command -v $(1) >/dev/null || echo $(1))

.PHONY: configure
# Always: it takes a second, and notices what was installed or how a test describes itself.
configure:
	@tools/setup --check build
	@mkdir -p build && cmake --preset release $(CUDA) $(VARIANTS) > build/configure.log || { cat build/configure.log; exit 1; }
	@$(if $(VARIANTS),sed -n 's/^-- \(tigon: .*kernels.*\)/\1/p' build/configure.log)

setup-%:
	@tools/setup $(subst -, ,$*)

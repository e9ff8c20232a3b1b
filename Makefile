# The project's commands. `make demo` and `make test` install what is missing, build and run.
PRESET ?= dev
JOBS ?= $(shell nproc)
BIN := build/bin/actzip
export NINJA_STATUS ?= [%f/%t, %es] 

.DEFAULT_GOAL := help
.PHONY: help setup configure build demo check test test-gpu test-models test-sanitize bench lint format clean

help:            ## list the commands
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

demo:            ## train a small ResNet, plain and compressed, and compare; builds the Python package alone
	@tools/setup.sh demo
	@[ -f build/build.ninja ] || tools/quietly.sh cmake --preset demo
	@echo "demo: building the Python package"
	@cmake --build --preset demo --parallel $(JOBS)
	@.venv/bin/python -m actzip.demo

setup:           ## install what is missing: system packages, and .venv with the Python side
	@tools/setup.sh

configure: setup
	@tools/quietly.sh cmake --preset $(PRESET)

build: configure ## build everything into build/; the program is build/bin/actzip
	cmake --build --preset $(PRESET) --parallel $(JOBS)

check: configure ## the quick tier for everyday work: unit and conformance tests, the core of the torch suite, style
	cmake --build --preset check --parallel $(JOBS)
	ctest --preset check --parallel $(JOBS)

test: build      ## the whole CPU suite
	ctest --preset $(PRESET) --parallel $(JOBS) --label-exclude cuda

test-gpu: build  ## the CUDA tests; a missing GPU is a failure
	ACTZIP_REQUIRE_CUDA=1 ctest --preset $(PRESET) --label-regex cuda --no-tests=error

test-models: build  ## gradients of 74 models and losses that nobody here tuned for, as a table: two minutes
	PYTHONPATH=build/python .venv/bin/python tests/unseen/sweep.py

test-sanitize: setup  ## core and adapter under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer: an hour
	cmake --preset asan && cmake --build --preset asan --parallel $(JOBS)
	ctest --preset asan --parallel $(JOBS) --label-regex '^(unit|property|conformance|data|torch|differential)$$'
	cmake --preset tsan && cmake --build --preset tsan --parallel $(JOBS) --target torch_thread_tests unit_tests actzip_python
	ctest --preset tsan --tests-regex '^(torch.threads|unit[.])' --exclude-regex '^unit[.]Plan[.]'

bench: build     ## every codec on the CPU, and on the GPU if there is one: bytes, error, speed
	$(BIN) bench codec

lint: setup      ## formatting, clang-tidy, file lengths, the dependency law
	@tools/quietly.sh cmake --preset lint
	tools/lint.sh build/lint

format:          ## rewrite the sources in the house format
	@tools/lint.sh --fix-format

clean:           ## remove everything that was built; .venv stays
	rm -rf build

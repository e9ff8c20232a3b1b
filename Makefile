# The commands people type. `make demo` and `make test` install what is missing, build, and run.
PRESET ?= dev
JOBS ?= $(shell nproc)
BIN := build/bin/actzip

.DEFAULT_GOAL := help
.PHONY: help setup configure build test test-gpu test-sanitize bench demo lint format clean

help:            ## list the commands
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

setup:           ## install what is missing: system packages, and .venv with the Python side
	@tools/setup.sh

configure: setup
	@cmake --preset $(PRESET) >build-configure.log 2>&1 || { cat build-configure.log; exit 1; }
	@rm -f build-configure.log

build: configure ## build everything into build/; the program is build/bin/actzip
	cmake --build --preset $(PRESET) --parallel $(JOBS)

test: build      ## the whole CPU suite: unit, property, conformance, program, fuzz, install, style
	ctest --preset $(PRESET) --parallel $(JOBS) --label-exclude cuda

test-gpu: build  ## the CUDA tests; a missing GPU is a failure
	ACTZIP_REQUIRE_CUDA=1 ctest --preset $(PRESET) --label-regex cuda --no-tests=error

test-sanitize: setup  ## core and adapter under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer: an hour
	cmake --preset asan && cmake --build --preset asan --parallel $(JOBS)
	ctest --preset asan --parallel $(JOBS) --label-regex '^(unit|property|conformance|data|torch|differential)$$'
	cmake --preset tsan && cmake --build --preset tsan --parallel $(JOBS) --target torch_thread_tests unit_tests actzip_python
	ctest --preset tsan --tests-regex '^(torch.threads|unit[.])'

bench: build     ## every codec on the CPU, and on the GPU if there is one: bytes, error, speed
	$(BIN) bench codec

demo: build      ## bytes, error and speed of every codec, as a table; then a short training, plain and compressed
	$(BIN) bench codec --quick
	for preset in none default; do \
	  $(BIN) train --model gcn --data rings --epochs 200 --hidden 64 --optimizer adam --lr 0.01 --preset $$preset || exit; \
	done

lint: configure  ## formatting, clang-tidy, file lengths, the dependency law
	tools/lint.sh build

format:          ## rewrite the sources in the house format
	@tools/lint.sh --fix-format

clean:           ## remove everything that was built; .venv stays
	rm -rf build

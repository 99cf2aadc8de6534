# The commands of the house; the work is done by CMake and by the scripts in tools/. `make help` lists them.

SHELL := /bin/bash
JOBS ?= $(shell nproc)

.PHONY: help setup demo check check-long fuzz bench soak chaos build format clean
.DEFAULT_GOAL := build

help:
	@echo "make demo    install what is missing, build, train a model with gloo and with Talweg, compare"
	@echo "make check   what must hold of every change: format, tests, the core under sanitizers, lint (half an hour on two cores)"
	@echo "make check-long  all the rest: everything under sanitizers, packages, PyTorch's suites, fuzzers, lint of all (more than an hour, two where nothing is built)"
	@echo "make fuzz    every fuzzer for MINUTES (10), then a million strangers at a running job"
	@echo "make bench   measure Talweg beside its peers; ARGS=\"net --quick\" for a part of it"
	@echo "make soak    a hundred thousand mixed collectives, each checked, in four kinds of groups (minutes)"
	@echo "make chaos   SEEDS (10000) simulated clusters that lose, cut, crash and pause; each promise checked (minutes)"
	@echo "make build   the release build, leaving the program at build/talweg (the default)"
	@echo "make format  rewrite the C++ sources in the house's format"
	@echo "make clean   remove all build folders (the virtual environment stays)"

setup:
	@tools/setup.sh run

build:
	@tools/build.sh release $(JOBS)

demo:
	@tools/demo.sh $(JOBS)

check:
	@tools/check.sh

check-long:
	@tools/check.sh long

fuzz:
	@tools/setup.sh check
	@tools/fuzz.sh $(MINUTES)

bench:
	@tools/setup.sh bench
	@bash bench/run.sh $(ARGS)

# 10^5 collectives: ranks as threads and as processes, through shared memory and over TCP. Some ten minutes.
SOAK ?= --steps 25000 --seed 1
soak:
	@tools/build.sh release $(JOBS)
	@for how in "" --tcp --processes "--processes --tcp"; do build/tests/soak/soak $(SOAK) $$how || exit 1; done

# Clusters in virtual time, each from its seed; a seed that fails is printed as the command that replays it.
SEEDS ?= 10000
FIRST ?= 1
chaos:
	@tools/build.sh release $(JOBS)
	@build/tests/chaos/chaos --seeds $(SEEDS) --first $(FIRST)
	@build/tests/protocol/bounded_test --gtest_brief=1 --gtest_filter='ExchangeSeeds.*'

format:
	@tools/sources.sh | xargs -r clang-format-14 -i

clean:
	@rm -rf build build-dev build-asan build-tsan build-fuzz build-lint

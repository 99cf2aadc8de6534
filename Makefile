# The commands of the house; the work is done by CMake and by the scripts in tools/. `make help` lists them.

SHELL := /bin/bash
JOBS ?= $(shell nproc)

.PHONY: help setup demo check bench build format clean
.DEFAULT_GOAL := build

help:
	@echo "make demo    install what is missing, build, train a model with gloo and with Talweg, compare"
	@echo "make check   everything that must hold: format, tests, sanitizers, lint, Python (under 20 minutes)"
	@echo "make bench   measure Talweg beside its peers; ARGS=\"net --quick\" for a part of it"
	@echo "make build   the release build, leaving the program at build/talweg (the default)"
	@echo "make format  rewrite the C++ sources in the house's format"
	@echo "make clean   remove all build folders (the virtual environment stays)"

setup:
	@tools/setup.sh run

build:
	@tools/build.sh release $(JOBS)

demo: setup
	@tools/build.sh release $(JOBS)
	@.venv/bin/python examples/demo/demo.py

check:
	@tools/check.sh

bench:
	@tools/setup.sh bench
	@bash bench/run.sh $(ARGS)

format:
	@tools/sources.sh | xargs -r clang-format-14 -i

clean:
	@rm -rf build build-dev build-asan build-tsan

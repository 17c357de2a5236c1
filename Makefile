# The contributor's manual. `make help` prints it.
#
#   make demo    the access-log job, live in the terminal, for about a minute (FOLLOW=1 goes on until Ctrl-C)
#   make test    everything that has to pass before a change is merged; .ci/run calls exactly this
#
# Both make .venv first: Python 3.11 or later from the machine, everything else from PyPI. Java 17 or later is needed for
# Spark; tools/check_java says what to do if it is missing.

.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help demo test lint types architecture unit bench compare soak docs clean setup java

help:  ## this text
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## make .venv with the package and the development tools

$(READY): pyproject.toml tools/setup_venv
	@tools/setup_venv
	@touch $(READY)

java:  ## look for Java 17 or later, and say what to do without it
	@tools/check_java

demo: $(READY) java  ## the access-log job for about a minute; FOLLOW=1 goes on, LOGFILE=path reads your own log, KAFKA=1 runs a broker
	@$(BIN)/penstock demo access-log $(if $(FOLLOW),--follow) $(if $(LOGFILE),--file "$(LOGFILE)") \
	  $(if $(KAFKA),$(if $(findstring :,$(KAFKA)),--bootstrap-servers $(KAFKA),--kafka))

test: $(READY) java lint types unit  ## lint, types, architecture, and all tests (docstring examples included)

lint: $(READY) architecture  ## style: ruff's rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

architecture: $(READY)  ## the rules of the tree: import order, file length, __all__, docstrings
	$(BIN)/python tools/check_architecture.py

types: $(READY)  ## mypy, strict
	$(BIN)/mypy

unit: $(READY)  ## the tests alone, by two processes; ARGS="-k name -x -n 0" goes to pytest (-n 0: in this process)
	$(BIN)/pytest -n 2 --doctest-modules src tests $(ARGS)

bench: $(READY) java  ## the workloads of docs/benchmarks.md, results to bench/results/
	$(BIN)/python bench/run.py $(ARGS)

compare: $(READY) java  ## Penstock beside Kafka Streams, Quix Streams, Bytewax and Faust over one broker
	$(BIN)/python bench/compare.py $(ARGS)

soak: $(READY) java  ## 50 rounds of faults over a real broker: nothing lost, nothing double; ARGS="--rounds 5 --seed 1"
	$(BIN)/python tests/soak/soak.py $(ARGS)

docs: $(READY)  ## the generated pages of docs/
	$(BIN)/python tools/build_docs.py

clean:  ## remove what the other targets made (not your topics: the demo's data in .demo goes with `rm -r .demo`)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist site spark-warehouse

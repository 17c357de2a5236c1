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

.PHONY: help demo test beside compiled test-all lint types architecture unit bench compare nexmark shufflebench theodolite bench-rtm soak judges fuzz docs docs-check clean setup java soak-connect image-requirements dist release

help:  ## this text
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## make .venv with the package and the development tools, and install the commit hooks
	@tools/install_hooks

$(READY): pyproject.toml tools/setup_venv src/penstock/base/version.py
	@tools/setup_venv
	@touch $(READY)

java:  ## look for Java 17 or later, and say what to do without it
	@tools/check_java

demo: $(READY) java  ## the access-log job for about a minute; FOLLOW=1 goes on, LOGFILE=path reads your own log, KAFKA=1 runs a broker
	@$(BIN)/penstock demo access-log $(if $(FOLLOW),--follow) $(if $(LOGFILE),--file "$(LOGFILE)") \
	  $(if $(KAFKA),$(if $(findstring :,$(KAFKA)),--bootstrap-servers $(KAFKA),--kafka))

test: $(READY) java  ## lint, types, architecture, the site, and all tests (docstrings' too)
	@$(MAKE) --no-print-directory -j 2 lint compiled
	@$(MAKE) --no-print-directory -j 2 unit beside

# With the lowest priority: it fills the time in which tests wait.
beside: $(READY)
	@nice -n 19 $(MAKE) --no-print-directory types docs-check

lint: $(READY) architecture  ## style: ruff's rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

architecture: $(READY)  ## the rules of the tree: import order, file length, __all__, docstrings
	$(BIN)/python tools/check_architecture.py

types: $(READY)  ## mypy, strict
	$(BIN)/mypy

# The many processes that tests start need not compile the package, each for itself, where the environment keeps Python from
# writing what it has compiled.
compiled: $(READY)
	@$(BIN)/python -m compileall -q -j 2 src tests
	@$(BIN)/python tools/compile_tests.py 2

# Four processes keep two cores busy, as three of them often wait for Spark or a broker (tests/conftest.py has the order).
unit: compiled  ## the tests alone, by four processes; ARGS="-k name -x -n 0" goes to pytest (-n 0: in this process)
	$(BIN)/pytest -n 4 --reruns 1 --doctest-modules src tests $(ARGS)

test-all: test  ## and the whole sets of which `make test` takes samples; PENSTOCK_SEEDS=10000 for fewer simulated schedules
	$(BIN)/python tests/conformance/run.py tests/conformance/cases.tar.xz --splits 1
	$(BIN)/python tests/conformance/run.py tests/conformance/cases-44.tar.xz
	$(BIN)/python tests/conformance/run.py tests/conformance/cases-44.tar.xz --splits 1
	$(BIN)/python tests/conformance/run.py tests/conformance/cases.tar.xz --engine spark
	$(BIN)/python tests/conformance/run.py tests/conformance/cases.tar.xz --engine spark --cached
	$(BIN)/python tests/conformance/run.py tests/conformance/cases.tar.xz --engine continuous
	$(BIN)/python tests/conformance/run.py tests/conformance/cases.tar.xz --engine continuous --cached
	$(BIN)/python tests/conformance/run.py tests/conformance/cases.tar.xz --engine continuous --splits 1
	$(BIN)/python tests/connect/run.py --kind rest --log kafka --only '^(?!restart-standalone|source-truncated)'  # docs/connect/differences.md
	$(BIN)/python tests/connect/connect_soak.py --rounds 5
	$(BIN)/python tests/judges/judges.py --judge smoke --size short --count 1
	$(BIN)/python tests/fuzz/serde_fuzz.py 10000
	$(BIN)/python tests/fuzz/wire_fuzz.py 1000000
	$(BIN)/python tests/simulation/schedules.py --schedules $(or $(PENSTOCK_SEEDS),100000)
	PENSTOCK_EXAMPLES=100 $(BIN)/pytest -n 2 tests/property tests/sql tests/unit/runtime tests/unit/state/test_views.py
	$(BIN)/pytest -m whole tests

bench: $(READY) java  ## the workloads of docs/benchmarks.md, results to bench/results/
	$(BIN)/python bench/run.py $(ARGS)

compare: $(READY) java  ## Penstock beside Kafka Streams, Quix Streams, Bytewax and Faust over one broker
	$(BIN)/python bench/compare.py $(ARGS)

nexmark: $(READY) java  ## Nexmark's queries over a broker, beside Kafka Streams; ARGS="--n 200000 --queries q0 q5"
	$(BIN)/python bench/nexmark/run.py $(ARGS)

shufflebench: $(READY) java  ## ShuffleBench over a broker, beside Kafka Streams; ARGS="--n 200000 --guarantees alo"
	$(BIN)/python bench/shufflebench/run.py $(ARGS)

theodolite: $(READY) java  ## Theodolite's UC1 to UC4 over a broker, beside Kafka Streams; ARGS="--n 200000 --workloads uc4"
	$(BIN)/python bench/theodolite/run.py $(ARGS)

bench-rtm: $(READY) java  ## the tasks of Spark's real-time mode benchmark: latencies at 1,000 records/s; ARGS="--tasks a --seconds 90"
	$(BIN)/python bench/rtm/run.py $(ARGS)

soak: $(READY) java  ## 50 rounds of faults over a real broker: nothing lost, nothing double; ARGS="--rounds 5 --cluster"
	$(BIN)/python tests/soak/soak.py $(ARGS)

soak-connect: $(READY) java  ## 50 rounds of faults against three Connect workers over a broker; ARGS="--rounds 5 --log embedded"
	$(BIN)/python tests/connect/connect_soak.py $(ARGS)

judges: $(READY) java  ## Apache Kafka's own verifiers judge applications under kill -9; ARGS="--judge smoke --rounds 200"
	$(BIN)/python tests/judges/judges.py --results bench/results/judges.json $(ARGS)

fuzz: $(READY)  ## malformed record batches and answers of brokers, a million of each; COUNT=20000 for fewer
	$(BIN)/python tests/fuzz/wire_fuzz.py $(or $(COUNT),1000000)

image-requirements: $(READY)  ## deploy/requirements.txt anew: what the image installs, pinned with hashes; needs uv
	@(echo "# What the image installs, pinned. Made by: make image-requirements"; uv pip compile pyproject.toml --quiet \
	  --extra kafka --extra query --extra schemas --extra ui --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
	  --generate-hashes --no-header --no-annotate) > deploy/.requirements.txt
	@mv deploy/.requirements.txt deploy/requirements.txt

docs: $(READY)  ## the generated pages of docs/, then the documentation site in site/
	$(BIN)/python tools/build_docs.py
	$(BIN)/python tools/build_site.py

docs-check: $(READY)  ## the site alone, strictly: links, navigation, a page and a docstring for every public name
	$(BIN)/python tools/build_site.py

# The time of the commit is that of the build, so that everybody gets the same bytes from it.
dist: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
dist: $(READY)  ## the wheel and the sdist of this commit, the same bytes each time, and their bill of materials, in dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python tools/sbom.py dist/penstock.cdx.json

release: $(READY)  ## cut a release: make release VERSION=1.0.0 writes, commits and tags it
	$(BIN)/python tools/cut_release.py "$(VERSION)"

clean:  ## remove what the other targets made (not your topics: the demo's data in .demo goes with `rm -r .demo`)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist site spark-warehouse

# Everything below sets itself up: a virtual environment in .venv, from the lock file, with Python 3.11 or newer.
PYTHON ?= python3
# More than there are cores: tests on a real API server mostly wait.
WORKERS ?= 4
# Which storms `make chaos` draws, and in how many clusters side by side; how long `make soak` runs.
SEEDS ?= 0-9
CHAOS_WORKERS ?= 2
SOAK_SECONDS ?= 3600
# Tests start hundreds of Python processes: let the first one keep its bytecode for the others.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
DEMO := .venv-demo

.PHONY: help demo test test-long hooks lint bench mutants e2e assets lock site release clean chaos soak

help: ## what can be made
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Dovetail needs Python 3.11 or newer; say which: make PYTHON=python3.12 ..." >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once) ..." >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# The demo needs eight packages, not the sixty of development: it has a small environment of its own.
$(DEMO)/.ready: requirements-demo.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Dovetail needs Python 3.11 or newer; say which: make PYTHON=python3.12 demo" >&2; exit 2; }
	@echo "1/2 setting up $(DEMO) with the eight packages that the demo needs (once, under a minute) ..." >&2
	@test -x $(DEMO)/bin/python || $(PYTHON) -m venv $(DEMO)
	@$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-demo.lock
	@touch $@

demo: $(DEMO)/.ready ## the main job: issue 7146 under the old rules and the new ones
	@echo "2/2 simulating six hours of the cluster of Karpenter's issue 7146 under each policy ..." >&2
	@PYTHONPATH=src $(DEMO)/bin/python -m dovetail.cli.main demo

test: $(READY) ## lint and all tests (DOVETAIL_TESTS=ci: on more generated cases); those that need an API server or a browser say so when they skip
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.run_tests -n $(WORKERS) --dist loadgroup

test-long: $(READY) ## the property tests and the swarm over many more cases; hours
	DOVETAIL_TESTS=long HYPOTHESIS_PROFILE=search nice -n 5 $(BIN)/pytest -n $(WORKERS) --dist loadgroup tests/properties tests/faults

hooks: $(READY) ## runs .pre-commit-config.yaml before every commit of this clone
	$(BIN)/pre-commit install

lint: $(READY) ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY) ## timings on the clusters of the benchmark set; writes docs/benchmarks
	$(BIN)/python -m benchmarks

mutants: $(READY) ## breaks decide, lifecycle and the actuators on purpose and prints what no test noticed
	nice -n 10 $(BIN)/python tools/mutants.py $(if $(EACH),--each $(EACH)) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) $(if $(JOBS),--jobs $(JOBS))

e2e: $(READY) assets ## the end-to-end tests on a real control plane
	$(BIN)/pytest -m "apiserver or e2e" -rs

chaos: $(READY) assets ## the controller behind a proxy that breaks everything; SEEDS=0-99
	CHAOS_SEEDS=$(SEEDS) $(BIN)/pytest -n $(CHAOS_WORKERS) --dist load -rs tests/chaos

soak: $(READY) assets ## an hour of real disruption, memory and promises watched; SOAK_SECONDS=3600
	$(BIN)/python -m tests.chaos.soak --seconds $(SOAK_SECONDS)

assets: ## builds kube-apiserver, etcd and friends into .assets (needs Go; minutes when cold)
	./tools/assets/build .assets

lock: ## resolves the lock file anew
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --all-extras --group dev pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --extra aws pyproject.toml -o requirements-runtime.lock
	printf 'msgspec\nnumpy\nPyYAML\nrich\ntzdata\n' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --constraint requirements-runtime.lock - -o requirements-demo.lock
	echo hatchling | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --constraint requirements.lock - -o deploy/requirements-build.lock

site: $(READY) ## the docs as a site in site/; a broken link fails
	$(BIN)/python tools/build_site.py

release: $(READY) ## wheel, image, chart and kubectl plugin into dist/ (Debian); uploads nothing
	$(BIN)/python -m tools.ship wheel
	$(BIN)/python -m tools.ship plugin
	$(BIN)/python -m tools.ship image >dist/image.digest
	$(BIN)/python -m tools.ship chart --digest "$$(cat dist/image.digest)"
	$(BIN)/python -m tools.ship checksums

clean: ## removes what was set up (not the assets)
	rm -rf $(DEMO) dist $(VENV) .mypy_cache .ruff_cache .hypothesis

# All paths are relative, so that a checkout may live in a folder with a space in its name.
# The stamp carries a checksum of the checkout's path: a moved checkout is set up again.
STAMP := .venv/.ready-$(shell pwd | cksum | cut -d' ' -f1)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# Stories start processes of their own and mostly wait for them: six at once keep two cores busy.
PARALLEL := -n 6 --dist worksteal
# The long ones work their processes hard, but some of them wait: three at once leave no core without work.
PARALLEL_LONG := -n 3 --dist worksteal
# Without the tests that no PostgreSQL has a part in.
OF_POSTGRES := -k "postgres or not (sqlite or model)"

# Where it is forbidden to keep compiled modules, every process would compile all of ours anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup parts parts-long demo example-converter example-datasets example-gateway example-reports example-verifier screenshots test test-long mutation bench bench-long lint docs docs-simulator docs-panel pins clean

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "make %-17s %s\n", $$1, $$2 }'

setup: $(STAMP) ## make .venv with perdure, editable, and the test tools (PYTHON=... to choose one)

$(STAMP): pyproject.toml requirements/dev.txt
	@PYTHON="$(PYTHON)" sh tools/setup.sh $@

parts: ## what no wheel has and the tests need: chromium, pgbouncer, strace (as root, with apt-get)
	@sh tools/parts.sh chromium pgbouncer strace

parts-long: ## the same for the long tests: PostgreSQL 15 and Prometheus, too
	@sh tools/parts.sh chromium pgbouncer strace postgresql-15 prometheus

demo: $(STAMP) ## take the tour: perdure against a misbehaving upstream
	@$(BIN)/perdure demo

# Examples start the servers of tests/servers, too.
example-converter: $(STAMP) ## PDF to XML behind a gateway that fails: every part is started, and has a bad day
	@$(BIN)/python -m examples.converter.demo

example-gateway: $(STAMP) ## an AI gateway, its API and a worker: a small real model, and a provider that fails by script
	@$(BIN)/python -m examples.gateway.demo

screenshots: $(STAMP) ## photograph the pages of the examples in a real browser
	@sh tools/parts.sh chromium
	@PYTHONPATH="$$PWD" $(BIN)/python tools/screenshots.py

example-reports: $(STAMP) ## report jobs on real parts (S3, a model, PostgreSQL), then the same under faults
	@$(BIN)/python examples/reports/demo.py
	@$(BIN)/python examples/reports/demo.py --faults

example-verifier: $(STAMP) ## a daemon that replays submitted runs of a game: every part is started, and has a bad day
	@$(BIN)/python -m examples.verifier.demo

example-datasets: $(STAMP) ## 10,000 samples become a data set, though the model's provider, a folder and a worker fail
	@$(BIN)/python examples/datasets/demo.py

test: lint parts ## lint, types, and every test but the long ones
	$(PYTEST) $(PARALLEL) -m "not long" --hypothesis-profile brief --durations 20

# The stores must pass on every PostgreSQL that they promise to run on: 18 in `make test`, 16 and 15 here.
test-long: $(STAMP) parts-long ## the tests that take over 30 seconds each, and the stores on other PostgreSQLs
	$(PYTEST) $(PARALLEL_LONG) -m long --timeout 1800
	$(PYTEST) $(PARALLEL_LONG) -m "hypothesis and not long" --hypothesis-profile long --timeout 1800
	PERDURE_TEST_POSTGRES=16 $(PYTEST) $(PARALLEL) tests/stores -m "not long" $(OF_POSTGRES)
	PERDURE_TEST_POSTGRES=15 $(PYTEST) $(PARALLEL) tests/stores -m "not long" $(OF_POSTGRES)
	PERDURE_TEST_HTTP=postgres $(PYTEST) $(PARALLEL) tests/surfaces/http -m "not long"
	$(MAKE) mutation

mutation: $(STAMP) ## how many planted defects the tests of the rules notice
	$(BIN)/python tools/mutation.py

# Benchmarks start the servers of tests/servers: the root is on their path.
bench: $(STAMP) parts ## run every benchmark
	@set -e; found=; for file in benchmarks/*.py; do \
		if [ -e "$$file" ]; then found=1; echo "== $$file"; PYTHONPATH="$$PWD" $(BIN)/python "$$file"; fi; \
	done; [ -n "$$found" ] || echo "bench: no benchmarks yet (benchmarks/*.py)"

bench-long: $(STAMP) parts ## run the benchmarks that have a larger size (--long) at that
	@set -e; found=; for file in benchmarks/*.py; do \
		if grep -q -e '"--long"' "$$file" 2>/dev/null; then \
			found=1; echo "== $$file --long"; PYTHONPATH="$$PWD" $(BIN)/python "$$file" --long; fi; \
	done; [ -n "$$found" ] || echo "bench-long: no benchmark knows --long yet"

lint: $(STAMP) ## ruff check, ruff format --check, mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

docs: $(STAMP) ## write the generated reference
	$(BIN)/python tools/reference.py

docs-simulator: $(STAMP) ## write the tables and pictures of docs/simulator.md; takes eight minutes
	$(BIN)/python tools/simulator.py

docs-panel: $(STAMP) ## draw the panel of `perdure run` for the README; takes half a minute
	$(BIN)/python tools/panel.py

pins: $(STAMP) ## renew requirements/*.txt (UPGRADE=1 to take newer versions)
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make pins" \
		$(if $(UPGRADE),--upgrade) --group dev --all-extras pyproject.toml --output-file requirements/dev.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make pins" \
		$(if $(UPGRADE),--upgrade) --group mutation pyproject.toml --output-file requirements/mutation.txt

clean: ## remove .venv and every cache
	rm -rf .venv .mutation build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

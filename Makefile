# All paths are relative, so that a checkout may live in a folder with a space in its name.
# The stamp carries a checksum of the checkout's path: a moved checkout is set up again.
STAMP := .venv/.ready-$(shell pwd | cksum | cut -d' ' -f1)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# Stories start processes of their own: two workers, however many cores there are.
PARALLEL := -n 2 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long mutation bench lint docs pins clean

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "make %-10s %s\n", $$1, $$2 }'

setup: $(STAMP) ## make .venv with perdure, editable, and the test tools (PYTHON=... to choose one)

$(STAMP): pyproject.toml requirements/dev.txt
	@PYTHON="$(PYTHON)" sh tools/setup.sh $@

demo: $(STAMP) ## take the tour: perdure against a misbehaving upstream
	@$(BIN)/perdure demo

test: lint ## lint, types, and every test but the long ones
	$(PYTEST) $(PARALLEL) -m "not long"

test-long: $(STAMP) ## the tests that take over 30 seconds each
	$(PYTEST) $(PARALLEL) -m long --timeout 1800
	$(MAKE) mutation

mutation: $(STAMP) ## how many planted defects the tests of the rules notice
	$(BIN)/python tools/mutation.py

bench: $(STAMP) ## run every benchmark
	@set -e; found=; for file in benchmarks/*.py; do \
		if [ -e "$$file" ]; then found=1; echo "== $$file"; $(BIN)/python "$$file"; fi; \
	done; [ -n "$$found" ] || echo "bench: no benchmarks yet (benchmarks/*.py)"

lint: $(STAMP) ## ruff check, ruff format --check, mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

docs: $(STAMP) ## write the generated reference
	$(BIN)/python tools/reference.py

pins: $(STAMP) ## renew requirements/*.txt (UPGRADE=1 to take newer versions)
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make pins" \
		$(if $(UPGRADE),--upgrade) --group dev pyproject.toml --output-file requirements/dev.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make pins" \
		$(if $(UPGRADE),--upgrade) --group mutation pyproject.toml --output-file requirements/mutation.txt

clean: ## remove .venv and every cache
	rm -rf .venv .mutation build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

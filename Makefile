# `make run` and `make test` need Python 3.11 or newer and make; the rest is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.longspan-installed
INPUTS := pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/longspan/kernels/cpu/csrc/*)

# The docs' theme otherwise greets every build with a note about the theme that follows it.
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.PHONY: help install run test test-gpu format pages docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## Install longspan and its tools into .venv

run: $(STAMP) ## Train a fixed and a learned reach on real text, and write a report
	@$(BIN)/longspan run

test: $(STAMP) ## Check format, lint, types and docs, then run the tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/mkdocs --quiet build --strict --site-dir build/site
	$(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist worksteal

test-gpu: $(STAMP) ## Run the tests that need a CUDA device
	CUBLAS_WORKSPACE_CONFIG=:4096:8 $(BIN)/pytest -m gpu

format: $(STAMP) ## Format the code and apply the safe fixes of the linter
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

pages: $(STAMP) ## Write the parts of docs/ again that come from the code and the records
	$(BIN)/python -m longspan.catalogue docs

docs: $(STAMP) ## Build the documentation into site/
	$(BIN)/mkdocs build --strict

clean: ## Remove .venv and everything that is built or cached
	rm -rf $(VENV) build dist site .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): $(INPUTS)
	@command -v $(PYTHON) >/dev/null || { \
	  echo "longspan needs Python 3.11 or newer; '$(PYTHON)' was not found." >&2; \
	  echo "Name another with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "longspan needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV); this takes a minute or two the first time."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

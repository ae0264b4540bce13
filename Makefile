# `make demo` and `make test` are the two commands a newcomer needs; `make help` lists the rest.

BIN := .venv/bin
WORKERS ?= 2

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test setup system lint types fast slow format constraints build clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## a tour of the program: no key, no account, no network after the installation
	@scripts/setup.sh run
	@$(BIN)/branchwork demo

test: setup system lint types fast slow ## everything that CI runs

setup: ## install the package, its extras and the development tools into .venv
	@scripts/setup.sh dev

system: ## programs outside Python that some tests need (apt-get, as root)
	@scripts/system.sh

lint: setup ## ruff, style and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup ## mypy, strict
	$(BIN)/mypy

fast: setup ## the tests that are quick
	$(BIN)/pytest -n $(WORKERS) -m "not slow"

slow: setup ## the others
	$(BIN)/pytest -m slow

format: setup ## let ruff rewrite what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

constraints: ## resolve everything anew and write constraints.txt
	@scripts/constraints.sh

build: setup ## sdist and wheel, in dist/
	$(BIN)/python -m build --no-isolation

clean: ## remove what the other targets made
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

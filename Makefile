# Two commands for a newcomer: `make demo` and `make test`; both set up what they need.
PYTHON := .venv/bin/python
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: setup setup-test demo demo-down test test-fast test-matrix check lint bench docs clean

setup:
	@./bootstrap

setup-test:
	@./bootstrap test

demo: setup
	@$(PYTHON) -m hpcplat.cli.main demo

demo-down: setup
	@hpcplat demo --down

# Real daemons are late now and then when two cores do all of this at once: what failed
# is run once more, alone. What fails again is a fault.
test: setup-test
	@$(PYTHON) -m pytest -n 2 \
		|| $(PYTHON) -m pytest --last-failed --last-failed-no-failures none

test-fast: setup-test
	@$(PYTHON) -m pytest -n 2 -m "not slurm and not slow"

test-matrix: setup-test
	@$(PYTHON) -m tests.matrix

lint: setup
	@ruff format --check .
	@ruff check .
	@mypy
	@lint-imports --no-logo

check: lint test

bench: setup-test
	@$(PYTHON) -m tests.benchmarks

docs: setup
	@$(PYTHON) -m tests.docs.generate
	@$(PYTHON) -m mkdocs build --quiet --strict

clean:
	@rm -rf .venv .setup build dist *.egg-info

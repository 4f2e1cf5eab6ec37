# Two commands for a newcomer: `make demo` and `make test`; both set up what they need.
# Not PYTHON: that is what ./bootstrap is told by its caller.
OURS := .venv/bin/python
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: setup setup-test demo demo-down test test-fast test-matrix check lint bench docs clean

setup:
	@./bootstrap

setup-test:
	@./bootstrap test

demo: setup
	@$(OURS) -m hpcplat.cli.main demo

# Without a setup: what is there can be taken down whatever is missing by now.
demo-down:
	@if [ -x .venv/bin/hpcplat ]; then hpcplat demo --down; else echo "No demo was there."; fi

# One more process than there are cores: many tests wait for Slurm. Real daemons are late
# now and then when two cores do all of this at once: what failed is run once more, alone.
# What fails again is a fault.
test: setup-test
	@$(OURS) -m pytest -n 3 --dist worksteal \
		|| $(OURS) -m pytest --last-failed --last-failed-no-failures none

test-fast: setup-test
	@$(OURS) -m pytest -n 3 --dist worksteal -m "not slurm and not slow"

test-matrix: setup-test
	@$(OURS) -m tests.matrix

lint: setup-test
	@ruff format --check .
	@ruff check .
	@mypy
	@lint-imports --no-logo

check: lint test

bench: setup-test
	@$(OURS) -m tests.benchmarks

docs: setup-test
	@$(OURS) -m tests.docs.generate
	@$(OURS) -m mkdocs build --quiet --strict

clean:
	@rm -rf .venv .setup build dist *.egg-info

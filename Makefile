# Every target works on a fresh machine with Python 3.11 or newer, make and a network: the first one that needs
# the virtual environment makes it, and it is brought up to date only when pyproject.toml changes.

VENV    := .venv
PY      := $(VENV)/bin/python
READY   := $(VENV)/.ready
DOCS    := $(VENV)/.docs-ready
CODE     = $(wildcard src tests scripts bench examples)
PYTHONS ?= python3.13 python3.12 python3.11 python3
ARGS    ?=
SECONDS ?= 600

# Tests start hundreds of interpreters; without the cache each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

PROBE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.PHONY: help demo test test-peers conformance soak check bench promises docs dist clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  Pass options with ARGS, as in: make test ARGS="-k crash"'

demo: $(READY) ## Run the demo; no key and no network needed (ARGS=--page, ARGS=--postgres)
	@$(PY) examples/demo.py $(ARGS)

# Four at once, on any number of cores: tests wait for the disk and for processes more than they compute.
test: $(READY) ## Run the tests
	@echo 'Running the tests'
	@$(PY) -m pytest -q -n 4 --dist worksteal -p no:schemathesis $(ARGS)

test-peers: $(READY) ## Run the tests against servers that others wrote; installs them into .bench/ (needs Node)
	@echo 'Running the tests against servers that others wrote'
	@$(PY) -m tests.peers.install
	@$(PY) -m pytest -q tests/peers $(ARGS)

conformance: $(READY) ## Run the conformance suite of MCP; part of make test-peers
	@echo 'Running the conformance suite of MCP'
	@$(PY) -m pytest -q tests/peers -k conformance $(ARGS)

soak: $(READY) ## Kill programs at random for SECONDS (600), with fresh seeds
	@$(PY) -m tests.crash.soak --seconds $(SECONDS) $(ARGS)

check: $(READY) ## Check format, lint, types and the order of imports
	@echo 'Checking the format'
	@$(PY) -m ruff format --quiet --diff $(CODE)
	@echo 'Checking the lint rules'
	@$(PY) -m ruff check --quiet $(CODE)
	@echo 'Checking the types'
	@out=$$($(PY) -m mypy $(CODE) 2>&1) || { echo "$$out"; exit 1; }
	@echo 'Checking the order of imports'
	@out=$$($(VENV)/bin/lint-imports 2>&1) || { echo "$$out"; exit 1; }

bench: $(READY) ## Run the benchmarks
	@$(PY) -m bench $(ARGS)

promises: $(READY) ## List the promises that no test proves yet
	@$(PY) scripts/promises.py

docs: $(DOCS) ## Build the documentation site into build/site; broken links are errors
	@echo 'Building the documentation'
	@out=$$(NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict $(ARGS) 2>&1) || { echo "$$out" | grep -v '^INFO'; exit 1; }
	@$(PY) scripts/docs_check.py build/site

dist: $(READY) ## Build wheel and sdist into dist/, check them, and run the quickstart from the wheel
	@$(PY) -m pip install -qq --disable-pip-version-check --group dist
	@$(PY) scripts/dist.py

clean: ## Remove the environments, caches and build output
	@echo 'Removing the environments, caches and build output'
	@rm -rf $(VENV) .bench build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find $(CODE) -type d -name __pycache__ -prune -exec rm -rf {} +

# Asking the interpreter, not the PATH: a version manager's shim may be there and still not run.
# The wheel of claude-agent-sdk holds a program of 350 MB that no test uses; its source distribution does not.
$(READY): pyproject.toml
	@if ! $(PY) -c '' 2>/dev/null; then \
	  for python in $(PYTHONS) none; do "$$python" -c '$(PROBE)' 2>/dev/null && break; done; \
	  if [ "$$python" = none ]; then \
	    echo 'No Python 3.11 or newer with its venv module among: $(PYTHONS).' >&2; \
	    echo 'Install one, or name it: make PYTHONS=/path/to/python3' >&2; exit 1; \
	  fi; \
	  echo "Making $(VENV) with $$("$$python" --version)"; \
	  "$$python" -m venv --clear $(VENV); \
	fi
	@echo 'Installing toolwright and its development tools into $(VENV)'
	@$(PY) -m pip install -qq --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(PY) -m pip install -qq --disable-pip-version-check --no-binary claude-agent-sdk \
	  --editable '.[all,claude-agent,langchain,openai-agents,pydantic-ai,temporal]' --group dev
	@touch $@

# What `make docs` needs and nothing else does.
$(DOCS): $(READY)
	@echo 'Installing the tools of the documentation into $(VENV)'
	@$(PY) -m pip install -qq --disable-pip-version-check --group docs
	@touch $@

# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Compiled once, beside the tools and not in the tree: tests start hundreds of servers.
export PYTHONPYCACHEPREFIX = $(CURDIR)/$(VENV)/pycache
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check chaos crash-matrix bench lock clean pictures

$(VENV)/.runtime: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	touch $@ $(VENV)/.runtime

# Starts the server, runs one turn and shows it; stays up until ctrl-C (ONCE=1: ends after the turn).
demo: $(VENV)/.runtime
	$(BIN)/python -m agentsdock demo

# Everything that must hold: style, types, layers, and every test.
# Chaos has the machine for itself.
test: check
	$(BIN)/python -m pytest -n 3 --dist loadfile -m "not chaos"
	$(BIN)/python -m pytest -m chaos

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy packaging/*.py
	$(BIN)/shellcheck *.sh
	$(BIN)/lint-imports

chaos: $(VENV)/.dev
	$(BIN)/python -m pytest -m chaos

# Kills the server at every commit and writes down what is left: docs/crash-matrix.md.
crash-matrix: $(VENV)/.dev
	$(BIN)/python tests/chaos/crash_matrix.py

# The pictures of the README.
pictures: $(VENV)/.dev
	AGENTSDOCK_PICTURES=1 $(BIN)/python -m pytest tests/page/test_page_pictures.py

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

# New versions of everything; the lock files carry hashes and no addresses.
lock: $(VENV)/.dev
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	    --no-annotate --no-header --no-emit-index-url --no-emit-find-links \
	    pyproject.toml --output-file requirements.lock
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	    --no-annotate --no-header --no-emit-index-url --no-emit-find-links \
	    --extra dev pyproject.toml --output-file requirements-dev.lock

clean:
	rm -rf $(VENV) .demo dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

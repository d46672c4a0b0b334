# From nothing: `make demo` and `make test` need Python 3.11 and make; everything else they fetch themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TEST_STAMP := $(VENV)/.installed-test

.PHONY: demo test lint bench screenshots lab clean

demo: $(STAMP)
	$(BIN)/python notebooks/demo.py

test: $(TEST_STAMP)
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

lint: $(TEST_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(TEST_STAMP)
	$(BIN)/python -m benchmarks

screenshots: $(TEST_STAMP)
	SANDBOX_KERNEL_PICTURES=docs/images $(BIN)/python -m pytest tests/browser/test_readme_pictures.py

lab: $(TEST_STAMP)
	$(BIN)/sandbox-kernel lab

clean:
	rm -rf $(VENV) artifacts

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(TEST_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[test,mcp,dask]'
	touch $@

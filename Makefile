# make demo   a picture in minutes            make test   everything that must hold
# Both set up .venv by themselves; they need only Python 3.11 or newer and make.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
WORKERS ?= 2
# of reproduce: the whole studies want a GPU and hours; OPTIONS="--quick --data FOLDER" is what docs/reproductions shows
OPTIONS ?=

.PHONY: venv demo test killed lint types docs bench reproduce format clean

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, got " + sys.version.split()[0] + "; run: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: venv
	$(BIN)/python -m tangentlens demo

test: venv lint docs
	$(BIN)/python -m pytest -n $(WORKERS) -q

# the long form of a test of the recorder: a recording run killed at 30 random moments and gone on with
killed: venv
	TANGENTLENS_KILLS=30 $(BIN)/python -m pytest -q -s tests/record/test_killed.py

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: venv
	$(BIN)/mkdocs build --strict --quiet

bench: venv
	$(BIN)/python -m tangentlens bench

reproduce: venv
	$(BIN)/python -m tangentlens reproduce all --pages docs/reproductions $(OPTIONS)

clean:
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache site

# make test and make demo work on a fresh machine: each makes the environment first, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: install test test-all demo lint docs bench models clean

install: $(READY)

test: $(READY) lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not long"

# with the tests marked `long`
test-all: $(READY) lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

demo: $(READY)
	$(BIN)/unnoise demo

lint: $(READY)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/basedpyright

# the site, into site/; a warning is a mistake
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# those that need no data; the others say at their top what they are given
bench: $(READY)
	for name in memory step; do echo "== $$name"; $(BIN)/python benchmarks/$$name.py 2>/dev/null || exit 1; done

# the models that come with the package, trained again; what was stopped goes on: make models DATA=path/to/data
models:
	@test -n "$(DATA)" || { echo "make models needs the folder of the data: make models DATA=path/to/data"; exit 2; }
	$(MAKE) install
	$(BIN)/python benchmarks/models.py --data $(DATA)

# the lock names torch first: its CPU build must be there before anything asks for torch
$(READY): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(READY)

clean:
	rm -rf $(VENV) dist runs site

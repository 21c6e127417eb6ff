# make demo    the whole pipeline on the demo world        make test    every check
# make repro   what changed, and what depends on it        make lint    style, types and layers only
# make lock    writes requirements.lock from pyproject.toml

VENV := .venv
UV := 0.13.9
BIN := $(CURDIR)/$(VENV)/bin
export PATH := $(BIN):$(PATH)
# Each stage is a process of its own: without bytecode files it would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := lib stages training tests benchmarks

.PHONY: demo test tests lint machine repro lock checkpoints clean

# One run is carried to its table before the others start.
demo: $(VENV)/ready
	@farther repro --first voc-faster_rcnn
	@echo; farther summary --short
	@echo; farther bundle voc-faster_rcnn knn artifacts/bundle
	@echo "Next, after: source .venv/bin/activate"
	@echo "  farther open"
	@echo "  farther predict artifacts/bundle artifacts/derived/paste/voc_pasted/pasted --out artifacts/predicted"

repro: $(VENV)/ready
	@farther repro

test: $(VENV)/ready
	@$(MAKE) --no-print-directory -j 2 lint tests

# Three workers on two cores, as many tests wait for other processes; PyTorch and BLAS have one thread in each.
tests: $(VENV)/ready machine
	OMP_NUM_THREADS=1 python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

lint: $(VENV)/ready
	ruff check $(SOURCES)
	ruff format --check $(SOURCES)
	mypy
	lint-imports

# What tests need beside Python: a browser for pages, an OpenSSH server for remotes (they start it themselves, on a free port).
# Only a machine that runs checks and nothing else (CI is set) is given the packages; elsewhere those tests are skipped.
machine:
	@missing=""; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || missing="chromium"; \
	[ -x /usr/sbin/sshd ] || missing="$$missing openssh-server"; \
	if [ -n "$$missing" ] && [ -n "$$CI" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $$missing; } >/dev/null 2>&1 \
	        && missing=""; \
	fi; \
	[ -z "$$missing" ] || echo "Not installed:$$missing. The tests that need it are skipped."

# The environment, by uv, which is several times as fast as pip; where there is none, it is installed into .venv first.
# Every file is checked against its hash.
$(VENV)/ready: requirements.lock pyproject.toml
	@if command -v uv >/dev/null 2>&1; then \
	    uv venv --quiet --allow-existing --python 3.11 $(VENV); \
	else \
	    python3 -m venv $(VENV) && $(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV); \
	fi
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) uv pip install --quiet --require-hashes -r requirements.lock
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) uv pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

lock:
	uv pip compile --quiet --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
	    --python-version 3.11 --extra dev --output-file requirements.lock pyproject.toml

# Trains the demo's detectors (hours on two cores) and puts them where the pipeline reads them. First set demo.most to null
# and run `dvc repro`: detectors are trained on all scenes.
checkpoints: $(VENV)/ready
	dvc --cd training repro
	cp artifacts/train/*/*.safetensors artifacts/train/*/*.json artifacts/train/*/*.md data/demo/
	cp -r artifacts/train/clip/model/. data/demo/clip/

clean:
	rm -rf $(VENV) artifacts

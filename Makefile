# Everything a developer or a new user does. `make run` and `make test` set up what they need.
.PHONY: run test check bench bench-quality docs pins
.DEFAULT_GOAL := run

VENV := .venv
# Retrieval test sets, and vaults whose headings are searched for.
QUALITY ?= ../shared/quality
VAULTS ?= ../shared/vaults
PYTHON := $(VENV)/bin/python
PIP := $(VENV)/bin/pip install -qq --disable-pip-version-check

run: $(VENV)/.run  ## The whole system on this machine, in the foreground
	@$(PYTHON) -m local

test: $(VENV)/.dev  ## Every test, against real servers
	$(PYTHON) -m pytest $(TESTS)

check: $(VENV)/.dev  ## Style, types, import boundaries
	$(PYTHON) -m ruff format --check shared services local tests bench
	$(PYTHON) -m ruff check shared services local tests bench
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports

bench: $(VENV)/.dev  ## Relaying measured against the provider itself, and mentions among 100,000 notes
	$(PYTHON) -m bench.relay
	$(PYTHON) -m bench.mentions

bench-quality: $(VENV)/.dev  ## How well passages are found, beside known baselines; the first run embeds for an hour
	nice $(PYTHON) -m bench.quality $(QUALITY) --vaults $(VAULTS) --cache .cache/quality

docs: $(VENV)/.dev  ## Write docs/reference anew from the code
	$(PYTHON) -m docs.generate

pins: $(VENV)/.dev  ## Write requirements/*.txt anew from pyproject.toml
	@for extra in gateway agent retrieval notes contexts local dev; do \
		$(PYTHON) -m piptools compile --quiet --extra $$extra --strip-extras --no-annotate --no-header \
			--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file requirements/$$extra.txt pyproject.toml && \
		sed -i -E '/^(marginalia|#)/d' requirements/$$extra.txt; \
	done

$(VENV)/.run: requirements/local.txt | $(VENV)/bin/python
	@echo "Installing what Marginalia needs (once)…"
	@$(PIP) -r requirements/local.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt | $(VENV)/bin/python
	@$(PIP) -r requirements/dev.txt
	@touch $@ $(VENV)/.run

$(VENV)/bin/python:
	@python=$$(./local/find-python.sh) && "$$python" -m venv $(VENV)

# Everything a developer or a new user does. `make run` and `make test` set up what they need.
.PHONY: run test check bench bench-quality docs pins web
.DEFAULT_GOAL := run

VENV := .venv
# Retrieval test sets, and vaults whose headings are searched for.
QUALITY ?= ../shared/quality
VAULTS ?= ../shared/vaults
PYTHON := $(VENV)/bin/python
NPM := $(shell command -v npm)
WEB := services/gateway/web
PIP := $(VENV)/bin/pip install -qq --disable-pip-version-check

run: $(VENV)/.run  ## The whole system on this machine, in the foreground
	@$(MAKE) --no-print-directory web || echo "The web client could not be built; the API serves alone."
	@$(PYTHON) -m local

test: $(VENV)/.dev web  ## Every test, against real servers
	$(PYTHON) -m pytest $(TESTS)

web: $(if $(NPM),$(WEB)/dist/.built)  ## The web client, where npm is there
	$(if $(NPM),,@echo "npm is not installed, so the web client is not built; the API serves alone.")

check: $(VENV)/.dev $(if $(NPM),$(WEB)/node_modules/.installed)  ## Style, types, import boundaries
	$(PYTHON) -m ruff format --check shared services local tests bench
	$(PYTHON) -m ruff check shared services local tests bench
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports
	$(if $(NPM),cd $(WEB) && npm run --silent check)

bench: $(VENV)/.dev  ## Relaying measured against the provider itself, and mentions among 100,000 notes
	$(PYTHON) -m bench.relay
	$(PYTHON) -m bench.mentions

bench-quality: $(VENV)/.dev  ## How well passages are found, beside known baselines; the first run embeds for an hour
	nice $(PYTHON) -m bench.quality $(QUALITY) --vaults $(VAULTS) --cache .cache/quality

docs: $(VENV)/.dev  ## Write docs/reference anew from the code
	$(PYTHON) -m docs.generate

pins: $(VENV)/.dev  ## Write requirements/*.txt anew from pyproject.toml
	@for name in shared gateway agent retrieval notes contexts embedder demo_model local dev; do \
		extra=$$([ $$name = shared ] || echo --extra $$name); \
		$(PYTHON) -m piptools compile --quiet $$extra --strip-extras --no-annotate --no-header \
			--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file requirements/$$name.txt pyproject.toml && \
		sed -i -E '/^(marginalia|#)/d' requirements/$$name.txt; \
	done

$(WEB)/dist/.built: $(WEB)/node_modules/.installed $(shell find $(WEB)/src -type f) $(addprefix $(WEB)/,index.html diagram.html vite.config.ts)
	@echo "Building the web client…"
	@cd $(WEB) && npm run --silent build -- --logLevel warn && touch dist/.built

$(WEB)/node_modules/.installed: $(WEB)/package-lock.json
	@cd $(WEB) && npm ci --silent && touch node_modules/.installed

$(VENV)/.run: requirements/local.txt | $(VENV)/bin/python
	@echo "Installing what Marginalia needs (once)…"
	@$(PIP) -r requirements/local.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt | $(VENV)/bin/python
	@$(PIP) -r requirements/dev.txt
	@touch $@ $(VENV)/.run

$(VENV)/bin/python:
	@python=$$(./local/find-python.sh) && "$$python" -m venv $(VENV)

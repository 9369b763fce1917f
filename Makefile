# Everything starts from a fresh clone: each target sets up what it needs.

UV_VERSION := 0.13.8
PYTHONS := python3.13 python3.12 python3.11 python3
BIN := .venv/bin
ARGS ?=

# What pip was told about this machine, uv has to know as well.
ifdef PIP_CERT
export SSL_CERT_FILE ?= $(PIP_CERT)
endif
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif

.DEFAULT_GOAL := help
.PHONY: help demo test lint lock clean java

help:
	@echo "make demo    Kafka, Spark, gateway and load on this machine (ARGS='--help' shows the options)"
	@echo "make test    lint, then all tests (ARGS='tests/unit' for some)"
	@echo "make lint    ruff, mypy and the import rules"
	@echo "make lock    renew requirements.lock from pyproject.toml"
	@echo "make clean   remove the virtualenv, caches and artifacts"

demo: .venv/.ready java
	@$(BIN)/spillway demo $(ARGS)

test: lint java
	@$(BIN)/pytest $(ARGS)

lint: .venv/.ready
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check . || { echo "run $(BIN)/ruff format"; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports > .venv/imports.log || { cat .venv/imports.log; exit 1; }
	@echo "lint: clean"

lock: .venv/.ready
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --extra dev \
		pyproject.toml -o requirements.lock
	@! grep -nE '^(--|[^#]*://)|^#.*(/|=)(opt|home|root|work|tmp)/' requirements.lock \
		|| { echo "requirements.lock names a machine or an index"; exit 1; }

clean:
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis artifacts build dist *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

java:
	@bash scripts/ensure-java.sh

# uv is quick, but pip will do: both check the hashes.
.venv/.ready: requirements.lock pyproject.toml
	@python=; for candidate in $(PYTHONS); do \
		if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	[ -n "$$python" ] || { echo "no Python 3.11 or newer was found; install one (Debian: apt-get install python3 python3-venv)"; exit 1; }; \
	echo "setting up .venv with $$($$python --version), about a minute …"; \
	$$python -m venv .venv > .venv.log 2>&1 || { cat .venv.log; rm -f .venv.log; exit 1; }; \
	rm -f .venv.log
	@{ $(BIN)/python -m pip install -q uv==$(UV_VERSION) && \
		$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes -r requirements.lock && \
		$(BIN)/uv pip install -q --python $(BIN)/python --no-deps -e .; } 2> .venv/uv.log || { \
		echo "uv did not do (.venv/uv.log), installing with pip …"; \
		$(BIN)/python -m pip install -q --require-hashes -r requirements.lock && \
		$(BIN)/python -m pip install -q --no-deps -e .; }
	@touch $@

# GNU make and a POSIX shell. `make` alone lists the targets.
#
# Everything runs in .venv, which `setup` makes once for each state of uv.lock and
# pyproject.toml: a virtual environment, a pinned uv from pip inside it, and what the lock says.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.SUFFIXES:

UV_VERSION := 0.13.9
PYTHON ?=
ARGS ?=
# More workers than two cores: the suite waits for processes more than it computes.
WORKERS ?= 3

VENV := .venv
PY := $(VENV)/bin/python
KEY := $(shell { echo '$(UV_VERSION) $(CURDIR)'; cat uv.lock pyproject.toml; } | cksum | cut -d' ' -f1)
READY := $(VENV)/.ready-$(KEY)

.PHONY: help setup demo test test-long check generate bench clean

help:
	@echo 'make demo       see it work: a hub, three questions, a page to answer them (ARGS=--auto answers by itself)'
	@echo 'make test       all tests but the long ones (ARGS="-k name")'
	@echo 'make test-long  all tests'
	@echo 'make check      format, lint, types, import contracts, generated files'
	@echo 'make generate   write the generated files again'
	@echo 'make bench      measure, and write the table of docs/performance.md'
	@echo 'make setup      only make .venv (the others do it when needed)'
	@echo 'make clean      remove .venv and every cache'

setup: $(READY)
	@:

demo: $(READY)
	@$(PY) -P -m upcall demo $(ARGS)

test: $(READY)
	@$(PY) -m pytest -q -n $(WORKERS) --dist worksteal -m 'not long' $(ARGS)

test-long: $(READY)
	@$(PY) -m pytest -q -n $(WORKERS) $(ARGS)

check: $(READY)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(PY) -m mypy
	$(VENV)/bin/basedpyright tests/typing
	$(VENV)/bin/lint-imports
	$(PY) -m pytest -q tests/architecture/test_generated.py

generate: $(READY)
	@$(PY) -B tests/architecture/generated.py

bench: $(READY)
	@$(PY) -m benchmarks $(ARGS)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	    .import_linter_cache .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY):
	@set -eu; \
	python=; seen=; \
	for name in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
	    version=$$($$name -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue; \
	    if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$name; break; fi; \
	    seen="$$seen, and $$name is $$version"; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "upcall needs Python 3.11 or newer$${seen:-, and no python3 was found}; install one, or name it: make PYTHON=/path/to/python3.11" >&2; \
	    exit 1; \
	fi; \
	if ! $$python -c 'import ensurepip, venv' 2>/dev/null; then \
	    echo "the venv module of $$python $$version is missing: apt install python3-venv" >&2; \
	    exit 1; \
	fi; \
	log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	try() { "$$@" >"$$log" 2>&1 </dev/null || { echo ' failed:' >&2; tail -n 20 "$$log" >&2; exit 1; }; }; \
	printf 'setting up $(VENV) with Python %s, once ...' "$$version"; \
	if [ "$$(cat $(VENV)/.folder 2>/dev/null)" != '$(CURDIR)' ] || ! $(PY) -m pip --version >/dev/null 2>&1; then \
	    try $$python -m venv --clear $(VENV); \
	    printf '%s\n' '$(CURDIR)' >$(VENV)/.folder; \
	fi; \
	case $$($(VENV)/bin/uv --version 2>/dev/null) in \
	    'uv $(UV_VERSION)'*) ;; \
	    *) try $(PY) -m pip install --quiet --force-reinstall --no-deps --disable-pip-version-check uv==$(UV_VERSION) ;; \
	esac; \
	try env -u VIRTUAL_ENV UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=$(VENV) \
	    $(VENV)/bin/uv sync --frozen --python $(PY); \
	rm -f $(VENV)/.ready-*; : >$@; \
	echo ' done'

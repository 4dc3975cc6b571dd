# Everything a developer needs; `make help` lists it. Each target installs what it uses into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Tests start hundreds of processes: none of them should compile what another has compiled.
export PYTHONDONTWRITEBYTECODE :=
# MariaDB without its service: the tests start their own.
MARIADB := mariadb-server-core mariadb-client-core mariadb-client
# What tests publish with, and put in front of the API.
CLIENTS := curl nginx-light haproxy python3-aiohttp
# What builds the image and tests the alert rules.
DEPLOY_TOOLS := buildah mmdebstrap prometheus
# The locks name exact versions and hashes; --no-deps keeps anything else out.
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
COMPILE := .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --no-header --no-annotate
# The lowest versions that pyproject.toml declares, in a virtual environment of their own, and what
# shows that they work: every package is used by one of these at least, on both engines.
FLOORS := .venv-floors
FLOORS_TOOLS := hatchling editables hypothesis pymysql pytest pytest-asyncio pytest-timeout pytest-xdist sqlglot trustme
FLOORS_TESTS := tests/cli/test_cli.py tests/delivery/test_secrets.py tests/api/test_health.py tests/api/test_framing.py tests/store/test_rows.py \
  tests/delivery/test_names_and_addresses.py tests/scenarios/test_five_scenarios.py

.DEFAULT_GOAL := help
.PHONY: help install mariadb mysql clients libfaketime dev test coverage test-long mutants floors check format generate lock faults faults-long faults-soak bench bench-write peers lock-peers deploy-tools release clean
# Where a measured run keeps its figures: some child processes run as another user.
MEASURED = data=$$(mktemp -d) && trap 'rm -rf "$$data"' EXIT && chmod 1777 "$$data" && COVERAGE_FILE="$$data/coverage"

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

install: $(READY) ## create .venv with everything in it

$(READY): requirements.lock requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "surehook needs Python 3.11 or newer; name one: make PYTHON=python3.12 …")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV)"
	@$(PIP) install --require-hashes --no-deps -r requirements-dev.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

mariadb: ## install the tests' second database engine, if apt is here and we may
	@if ! { export PATH="$$PATH:/usr/sbin"; command -v mariadbd && command -v mariadb-dump; } > /dev/null && \
	  test "$$(id -u)" = 0 && command -v apt-get > /dev/null; then \
	  echo "installing $(MARIADB)"; export DEBIAN_FRONTEND=noninteractive; \
	  apt-get -qq install -y --no-install-recommends $(MARIADB) > /dev/null 2>&1 || \
	  { apt-get -qq update && apt-get -qq install -y --no-install-recommends $(MARIADB) > /dev/null; } || \
	  echo "MariaDB cannot be installed: the tests will say what was not run"; fi

mysql: ## unpack a real MySQL for the tests, with the libraries it needs, if apt is here
	@$(PYTHON) tests/support/mysql.py

clients: ## install curl, nginx, haproxy and aiohttp for the API's tests, if apt is here and we may
	@if ! { export PATH="$$PATH:/usr/sbin"; command -v curl && command -v nginx && command -v haproxy && \
	  test -d /usr/lib/python3/dist-packages/aiohttp; } > /dev/null && \
	  test "$$(id -u)" = 0 && command -v apt-get > /dev/null; then \
	  echo "installing $(CLIENTS)"; export DEBIAN_FRONTEND=noninteractive; \
	  apt-get -qq install -y --no-install-recommends $(CLIENTS) > /dev/null 2>&1 || \
	  { apt-get -qq update && apt-get -qq install -y --no-install-recommends $(CLIENTS) > /dev/null; } || \
	  echo "They cannot be installed: the tests will say what was not run"; fi

libfaketime: ## install what gives a process a wrong clock, if apt is here and we may
	@if ! ls /usr/lib/*/faketime/libfaketimeMT.so.1 > /dev/null 2>&1 && \
	  test "$$(id -u)" = 0 && command -v apt-get > /dev/null; then \
	  echo "installing libfaketime"; export DEBIAN_FRONTEND=noninteractive; \
	  apt-get -qq install -y --no-install-recommends libfaketime > /dev/null 2>&1 || \
	  { apt-get -qq update && apt-get -qq install -y --no-install-recommends libfaketime > /dev/null; } || \
	  echo "libfaketime cannot be installed: the run will say what was not run"; fi

deploy-tools: ## install buildah, mmdebstrap and promtool for the long tests, if apt is here and we may
	@if ! { command -v buildah && command -v mmdebstrap && command -v promtool; } > /dev/null && \
	  test "$$(id -u)" = 0 && command -v apt-get > /dev/null; then \
	  echo "installing $(DEPLOY_TOOLS)"; export DEBIAN_FRONTEND=noninteractive; \
	  apt-get -qq install -y --no-install-recommends $(DEPLOY_TOOLS) > /dev/null 2>&1 || \
	  { apt-get -qq update && apt-get -qq install -y --no-install-recommends $(DEPLOY_TOOLS) > /dev/null; } || \
	  echo "They cannot be installed: the tests will say what was not run"; fi

dev: $(READY) ## run the whole system here, database included, until Ctrl-C
	@exec $(BIN)/surehook dev

test: $(READY) mariadb mysql clients ## every test that CI runs, on each database engine that is here
	@$(MEASURED) $(BIN)/python -m pytest -n 4 --dist worksteal -m "not long" --cov --cov-report=

coverage: $(READY) mariadb mysql clients ## make test, and every line and branch that no test reached
	@$(MEASURED) $(BIN)/python -m pytest -n 4 --dist worksteal -m "not long" --cov \
	  --cov-report=term-missing:skip-covered

test-long: $(READY) mariadb mysql clients deploy-tools ## what needs minutes or millions of rows; 4 buckets; all on MySQL
	@$(BIN)/python -m pytest -m long
	@SUREHOOK_TEST_BUCKETS=4 $(BIN)/python -m pytest -n 4 --dist worksteal -m "not long" \
	  tests/store tests/pipeline tests/scenarios
	@SUREHOOK_TEST_ENGINES=mysql SUREHOOK_TEST_MYSQL=mysql $(BIN)/python -m pytest -n 4 \
	  --dist worksteal -m "not long" tests/pipeline tests/outbox

mutants: $(READY) mariadb ## change one condition at a time and see whether a test notices; hours
	@exec $(BIN)/python -m tools.mutants

floors: $(FLOORS)/.ready mariadb ## a smoke suite with the lowest versions that pyproject.toml permits
	@exec $(FLOORS)/bin/python -m pytest -q -n 4 --dist worksteal -m "not long" -p no:cacheprovider $(FLOORS_TESTS)

$(FLOORS)/.ready: requirements-floors.lock pyproject.toml
	@rm -rf $(FLOORS) && $(PYTHON) -m venv $(FLOORS)
	@echo "installing into $(FLOORS)"
	@$(FLOORS)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes --no-deps \
	  --only-binary :all: -r requirements-floors.lock
	@$(FLOORS)/bin/python -m pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation --editable .
	@touch $@

check: $(READY) ## lint, types, dead code, structure, generated files fresh
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/vulture
	@$(BIN)/python -m tools.generate --check
	@$(BIN)/hadolint deploy/Dockerfile
	@$(BIN)/yamllint --strict --config-file deploy/.yamllint.yaml deploy
	@$(BIN)/shellcheck .ci/run
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/test_tidy.py tests/store/test_statements.py \
	  tests/docs/test_pages.py tests/deploy/test_files.py tests/deploy/test_monitoring.py

format: $(READY) ## let ruff format and fix what it can
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet .

generate: $(READY) ## write SQL, client and reference pages from what is declared once
	@$(BIN)/python -m tools.generate

lock: ## resolve pyproject.toml anew into the lock files
	@test -x .venv-lock/bin/uv || ($(PYTHON) -m venv .venv-lock && .venv-lock/bin/python -m pip -q install uv==0.13.7)
	@$(COMPILE) --extra embedded pyproject.toml -o requirements.lock
	@$(COMPILE) --extra embedded --no-strip-extras -c requirements.lock pyproject.toml requirements-dev.in -o requirements-dev.lock
	@grep -oE '^hatchling==[^ ]+' requirements-dev.lock | \
	  $(COMPILE) -c requirements-dev.lock - -o requirements-build.lock
	@grep -oE '^($(subst $() ,|,$(FLOORS_TOOLS)))==[^ ]+' requirements-dev.lock | \
	  $(COMPILE) --extra embedded --resolution lowest-direct pyproject.toml - -o requirements-floors.lock

faults: $(READY) mariadb libfaketime ## break everything on purpose, in minutes; docs/reliability.md
	@exec $(BIN)/python -m faults

faults-long: $(READY) mariadb libfaketime ## the same with the full figures, in about half an hour
	@exec $(BIN)/python -m faults --long --without soak

faults-soak: $(READY) mariadb ## half of the load that this machine can take, for half an hour
	@exec $(BIN)/python -m faults --long --scenario soak

bench: $(READY) ## measure: deliveries per second, CPU, latency, memory; a few minutes
	@exec $(BIN)/python -m surehook bench

bench-write: $(READY) mariadb ## measure everything, others too, and write docs/performance.md
	@$(BIN)/python -m surehook bench --all --json > bench/stored.json.new && mv bench/stored.json.new bench/stored.json
	@$(BIN)/python bench/peers/run.py --json bench/peers/stored.json
	@$(BIN)/python bench/page.py

peers: $(READY) ## the same work by others: pgqueuer, procrastinate, Celery, Dramatiq, graphile-worker
	@exec $(BIN)/python bench/peers/run.py

lock-peers: ## resolve bench/peers/requirements.in and package.json anew
	@test -x .venv-lock/bin/uv || ($(PYTHON) -m venv .venv-lock && .venv-lock/bin/python -m pip -q install uv==0.13.7)
	@cd bench/peers && ../../$(subst --extra embedded,,$(COMPILE)) requirements.in -o requirements.lock
	@cd bench/peers && npm install --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund

release: $(READY) ## build wheel and sdist twice, try them in new environments, write the SBOM
	@exec $(BIN)/python -m tools.release

clean: ## remove what the targets made (not a data directory)
	rm -rf $(VENV) .venv-lock $(FLOORS) bench/peers/.venv bench/peers/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis dist

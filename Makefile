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

# Builds go to $CARGO_TARGET_DIR if it is set.
target := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
module := $(target)/release/libredis_throttle.so
faults := $(target)/fault-injection
exporter := $(target)/release/redis-throttle-exporter
lab := $(target)/release/redis-throttle-lab
module_with_faults := $(faults)/release/libredis_throttle.so
noop := $(target)/noop-command
clients := $(target)/clients
servers := .cache/servers

# The folder of cargo, for a shell that was opened before rustup added that folder to PATH.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
export SERVER ROUNDS ONLY UPDATE

# `make dist` packs these builds, so all have the same flags.
release := RUSTFLAGS="$$(scripts/release-flags.sh)" cargo
cargo_build := $(release) build --release --locked
bench := cargo bench --locked --target-dir '$(target)/bench'
clippy := cargo clippy --locked --all-targets
# Runs the suites of the clients, then their examples as a reader starts them.
define test_clients
$(for_clients) test $(ONLY)
$(for_clients) example $(ONLY)
CARGO_TARGET_DIR='$(target)' RL_CLIENTS='$(clients)' RL_MODULE='$(module)' \
	cargo test --locked --test examples $(example_of_$(ONLY))
endef
# Builds the lab and tests its page in Chromium.
define test_page
$(cargo_build) --package redis-throttle-lab
RL_LAB='$(lab)' $(for_clients) lab
endef
example_of_python := fastapi
example_of_node := express
example_of_rust := axum
example_of_go := nethttp
example_of_java := spring_boot

for_clients := CARGO_TARGET_DIR='$(clients)' RL_MODULE='$(module)' scripts/clients.sh

.DEFAULT_GOAL := help
.PHONY: help build run demo lab plots test test-matrix soak fuzz check clean dist exporter gateway
.PHONY: bench bench-full bench-pure bench-lab bench-instructions bench-module bench-clients
.PHONY: bench-gateway
.PHONY: example-fastapi example-express example-axum example-nethttp example-spring-boot example-envoy
.PHONY: test-clients test-lab check-clients

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

gateway: ## build the gateway for proxies, target/clients/release/redis-throttle-gateway
	@scripts/install-prerequisites.sh rust build
	$(cargo_build) --package redis-throttle-gateway --manifest-path clients/rust/Cargo.toml \
		--target-dir '$(clients)'

dist: ## pack a tarball, Debian packages and the clients into target/dist, install and run them
	@scripts/install-prerequisites.sh rust build server dist clients
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
	@scripts/install-prerequisites.sh rust build server clients
	$(cargo_build)
	@$(for_clients) example $(language_of_$*)
	@RL_CLIENTS='$(clients)' scripts/example.sh $* '$(module)' $(PORT) $(HTTP_PORT) $(ARGS)

example-envoy: HTTP_PORT := 10000
example-envoy: gateway ## start a server, the gateway and Envoy with limits on HTTP_PORT=10000
	@scripts/install-prerequisites.sh server pip
	$(cargo_build)
	@scripts/fetch-envoy.sh .cache/envoy
	@RL_CLIENTS='$(clients)' scripts/example.sh envoy '$(module)' $(PORT) $(HTTP_PORT) $(ARGS)

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

test: ## run all tests
	@scripts/install-prerequisites.sh rust build server promtool proxies browser clients
	@scripts/fetch-clients.sh .cache/clients
	@$(for_clients) manifests
	cargo test --locked --package redis-throttle-engine --features oracle
	cargo test --locked --lib --test house --test pages --test release
	$(release) test --release --locked --package redis-throttle-exporter
	$(cargo_build)
	$(cargo_build) --features fault-injection --target-dir '$(faults)'
	RL_MODULE='$(module)' RL_MODULE_FAULTS='$(module_with_faults)' \
		cargo test --locked --test e2e --test functions --test snippets --test plots
	RL_MODULE='$(module)' cargo test --locked --package redis-throttle-lab
	$(test_page)
	$(cargo_build) --package redis-throttle-exporter
	$(for_clients) monitoring
	RL_MODULE='$(module)' RL_MODULE_FAULTS='$(module_with_faults)' RL_EXPORTER='$(exporter)' \
		cargo test --locked --test monitoring
	$(test_clients)

test-clients: ## run the suites of the Python, Node, Rust, Go and Java clients, and of the gateway
	@scripts/install-prerequisites.sh rust build server proxies clients
	$(cargo_build)
	$(test_clients)

test-lab: ## test the lab's page in Chromium; SCREENSHOT=docs/lab.png pictures it
	@scripts/install-prerequisites.sh rust build server browser clients
	$(cargo_build)
	$(test_page)

check-clients: ## check format, lint and types of the clients
	@scripts/install-prerequisites.sh rust lint build clients
	$(for_clients) check $(ONLY)

soak: ## run random traffic, faults and clock steps for MINUTES=5, compared with the models
	@scripts/install-prerequisites.sh rust build server
	$(cargo_build)
	SOAK_MINUTES=$(MINUTES) RL_MODULE='$(module)' \
		cargo test --locked --test soak

fuzz: ## run each fuzz target for SECONDS=20
	@scripts/install-prerequisites.sh rust build clients
	scripts/fuzz.sh $(SECONDS)
	$(for_clients) fuzz $(SECONDS)

test-matrix: ## run the end-to-end suite on every supported server, ONLY='valkey-9.1', or those in SERVERS=folder
	@scripts/install-prerequisites.sh rust build server promtool
	$(cargo_build)
	$(cargo_build) --features fault-injection --target-dir '$(faults)'
	RL_MODULE='$(module)' RL_MODULE_FAULTS='$(module_with_faults)' \
		SERVERS='$(SERVERS)' scripts/test-matrix.sh $(servers) $(ONLY)

bench: bench-module ## measure the figures that have a limit, on three servers; ROUNDS=15 ONLY=valkey-9.1
	RL_MODULE='$(noop)/release/libredis_throttle.so' SERVERS='$(CURDIR)/$(servers)/bench.txt' \
		$(bench) --bench server

bench-full: bench-module ## measure all other figures; takes most of an hour
	RL_MODULE='$(noop)/release/libredis_throttle.so' SERVERS='$(CURDIR)/$(servers)/bench.txt' \
		$(bench) --bench server -- full

bench-pure: ## time the steps of the engine
	@scripts/install-prerequisites.sh rust build
	$(bench) --package redis-throttle-engine --bench pure

bench-lab: ## time the lab: a simulation of 100,000 calls, a replay of 10,000,000 lines
	@scripts/install-prerequisites.sh rust build
	$(bench) --package redis-throttle-lab --bench lab --bench replay

bench-instructions: ## compare instruction counts with the baseline; UPDATE=1 writes it
	@scripts/install-prerequisites.sh rust build server valgrind
	cargo build --profile bench --locked --target-dir '$(target)/instructions'
	RL_MODULE='$(target)/instructions/release/libredis_throttle.so' \
		$(bench) --bench instructions

bench-clients: ## compare the clients with other ways, ROUNDS=5, and write docs/bench/clients.md
	@scripts/install-prerequisites.sh rust build server clients
	$(cargo_build)
	@$(for_clients) bench
	CARGO_TARGET_DIR='$(clients)' RL_MODULE='$(module)' \
		scripts/clients.sh run python3 benches/clients/run.py

bench-gateway: ## compare the gateway with a bare gRPC service and write docs/bench/gateway.md
	@scripts/install-prerequisites.sh rust build server
	$(cargo_build)
	RL_MODULE='$(module)' RL_SERVER='$(SERVER)' \
		cargo bench --locked --target-dir '$(clients)' --manifest-path gateway/Cargo.toml --bench gateway

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
	$(clippy) --workspace -- -D warnings
	$(clippy) --features fault-injection,noop-command -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --workspace --document-private-items
	$(for_clients) check

clean: ## remove all build results
	cargo clean
	rm -rf clients/python/.venv clients/node/node_modules clients/node/dist .cache/venv
	rm -rf examples/express/node_modules benches/clients/node/node_modules
	rm -rf lab/tests/browser/node_modules
	rm -rf .cache/go .cache/example-nethttp clients/go/testdata/fuzz
	rm -rf .cache/examples-spring-boot .cache/benches-clients-java clients/java/target clients/java/*/target
	rm -rf examples/spring-boot/target benches/clients/java/target tests/snippets/java/target

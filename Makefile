# redis-throttle: `make` lists what there is.

PORT ?= 7777
SERVER ?= redis-server
ARGS ?=
MINUTES ?= 5
SECONDS ?= 20

# A target directory of the user's own is respected.
target := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
module := $(target)/release/libredis_throttle.so
faults := $(target)/fault-injection
module_with_faults := $(faults)/release/libredis_throttle.so

# rustup puts cargo here, and a shell opened before that does not know it yet.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
export SERVER

cargo_build := cargo build --release --locked
clippy := cargo clippy --locked --all-targets

.DEFAULT_GOAL := help
.PHONY: help build run demo test test-matrix soak fuzz check clean

help: ## list these targets
	@echo 'Usage: make TARGET [PORT=7777] [SERVER=/path/to/server]'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: ## build the module, target/release/libredis_throttle.so
	@scripts/install-prerequisites.sh rust build
	$(cargo_build)

run: ## build, then start a server with the module on PORT, in the foreground
	@scripts/install-prerequisites.sh rust build server
	$(cargo_build)
	@scripts/run.sh '$(module)' $(PORT) $(ARGS)

demo: ## build, then show every command and the six algorithms side by side
	@scripts/install-prerequisites.sh rust build server
	$(cargo_build)
	@scripts/demo.sh '$(module)'

test: ## build and run everything that has to pass
	@scripts/install-prerequisites.sh rust build server
	cargo test --locked --no-default-features --lib --test house
	cargo test --locked --no-default-features --features oracle --test simulation --test allocations
	$(cargo_build)
	$(cargo_build) --features fault-injection --target-dir '$(faults)'
	RL_MODULE='$(module)' RL_MODULE_FAULTS='$(module_with_faults)' \
		cargo test --locked --no-default-features --test e2e

soak: ## MINUTES=5 of random traffic, faults and clock steps, compared with the models
	@scripts/install-prerequisites.sh rust build server
	$(cargo_build)
	SOAK_MINUTES=$(MINUTES) RL_MODULE='$(module)' \
		cargo test --locked --no-default-features --features oracle --test soak

fuzz: ## run each fuzz target for SECONDS=20
	@scripts/install-prerequisites.sh rust build
	scripts/fuzz.sh $(SECONDS)

test-matrix: ## run the end-to-end suite against every server that is claimed
	@scripts/install-prerequisites.sh rust build server
	$(cargo_build)
	$(cargo_build) --features fault-injection --target-dir '$(faults)'
	RL_MODULE='$(module)' RL_MODULE_FAULTS='$(module_with_faults)' \
		scripts/test-matrix.sh .cache/servers

check: ## check the format, and clippy and the docs with warnings as errors
	@scripts/install-prerequisites.sh rust lint build
	cargo fmt --check
	$(clippy) -- -D warnings
	$(clippy) --no-default-features --features oracle -- -D warnings
	$(clippy) --features fault-injection -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --document-private-items

clean: ## remove everything that was built
	cargo clean

#!/bin/sh
# Runs the checks and suites of the clients, with each language's own tools.
#
#   scripts/clients.sh check [LANGUAGE...]      format, lint and types
#   scripts/clients.sh test [LANGUAGE...]       the tests, which start their own servers
#   scripts/clients.sh fetch [LANGUAGE...]      downloads the packages of all that is below, but of the
#                                               benchmark; the others do it by themselves if need be
#   scripts/clients.sh example LANGUAGE         fetches and builds the example application's packages
#   scripts/clients.sh bench [pressure]         fetches and builds the benchmark's packages; for the
#                                               pressure, also the example applications and the gateway
#   scripts/clients.sh fuzz SECONDS             sends made-up replies to the decoder of the Go client
#   scripts/clients.sh pack FOLDER              packs a wheel and its sources, an npm package and the crates
#   scripts/clients.sh venv FOLDER REQUIREMENTS [PACKAGE...]
#                                               creates a virtual environment with a file's packages, and
#                                               with the packages in other folders
#   scripts/clients.sh npm_ci FOLDER            installs the packages of a folder's lock file
#   scripts/clients.sh run COMMAND...           runs a command with the Node of these suites
#   scripts/clients.sh go ARGUMENTS...          runs the Go of these suites
#
# LANGUAGE is python, node, rust, go or java; the default is all. $SERVER is the server,
# $RL_MODULE the module, $CARGO_TARGET_DIR the target directory of Rust. Complete packages are not
# fetched again.
set -eu
cd "$(dirname "$0")/.."

# Debian 12 has Node 18, and the client needs Node 20. npm then fetches this version and its npm, as
# packages.
node_version=20.20.2
npm_version=10.9.4
# Debian 12 has Go 1.19. The client needs Go 1.25; staticcheck and the highest driver need Go 1.26. An
# older go fetches this version as a module, whose checksum it compares with the public database.
go_version=1.26.8

fail() {
    printf '%s\n' "redis-throttle: $*" >&2
    exit 1
}

step() {
    printf '+ %s\n' "$*" >&2
    "$@"
}

# Succeeds if the folder $1 was built from exactly the files after it. record_sources stores the
# checksums of these files in $1 after $1 is complete.
is_built_from() {
    sums=$1/.made-from
    shift
    [ "$(cat "$sums" 2>/dev/null)" = "$(cksum "$@")" ]
}

record_sources() {
    sums=$1/.made-from
    shift
    cksum "$@" >"$sums"
}

use_node() {
    found=$(node --version 2>/dev/null || echo v0)
    found=${found#v}
    if [ "${found%%.*}" -lt 20 ]; then
        case $(uname -sm) in
        "Linux x86_64") platform=linux-x64 ;;
        "Linux aarch64") platform=linux-arm64 ;;
        *) fail "Node 20 or newer is needed and this is $found: https://nodejs.org has it" ;;
        esac
        packages=$PWD/.cache/node/node_modules
        if [ ! -x "$packages/node-$platform/bin/node" ] || [ ! -e "$packages/.bin/npm" ]; then
            echo "Node 20 or newer is needed and this is $found: $node_version goes into .cache/node" >&2
            step npm install --silent --no-audit --no-fund --no-save --prefix .cache/node \
                "node-$platform@$node_version" "npm@$npm_version" >&2
        fi
        PATH="$packages/node-$platform/bin:$packages/.bin:$PATH"
        export PATH
    fi
}

use_go() {
    found=$(go env GOVERSION 2>/dev/null || echo "no Go")
    [ "$found" != "no Go" ] || fail "Go 1.16 or newer is needed, which fetches $go_version: https://go.dev has it"
    oldest=$(printf '%s\n' "go${go_version%.*}" "$found" | sort -V | head -n 1)
    [ "$oldest" != "go${go_version%.*}" ] || return 0
    name=golang.org/toolchain@v0.0.1-go$go_version.$(go env GOHOSTOS)-$(go env GOHOSTARCH)
    folder=$PWD/.cache/go/$name
    if [ ! -x "$folder/bin/gofmt" ]; then
        echo "Go ${go_version%.*} or newer is needed and this is $found: $go_version goes into .cache/go" >&2
        (
            cd /
            GOMODCACHE=${folder%/golang.org/*} GOFLAGS=-modcacherw step go mod download "$name"
        )
        # Programs of a module are not executable. bin comes last: it marks the folder as complete.
        chmod +x "$folder"/pkg/tool/*/* "$folder"/bin/*
    fi
    PATH="$folder/bin:$PATH"
    export PATH GOTOOLCHAIN=local
}

use_java() {
    found=$(javac -version 2>/dev/null || echo "no JDK")
    number=${found#javac }
    number=${number%%[!0-9]*}
    [ "${number:-0}" -ge 17 ] || fail "JDK 17 or newer is needed and this is $found: Debian's default-jdk-headless"
    command -v mvn >/dev/null || fail "Maven 3.8 or newer is needed and none is installed: Debian's package maven"
}

# Runs Maven for all Java of the repository, which compiles with lint and checks the format in every
# build. It keeps packages in ~/.m2, and downloads none whose version is there.
maven() {
    step mvn --batch-mode --quiet --file clients/java/reactor.xml "$@"
}

# Packages the program whose project is $1, with the modules of the client that it needs.
package_java() {
    maven --projects ":$1" --also-make -DskipTests -Dspotless.check.skip package
}

# Creates the virtual environment $1 with the requirements of the file $2, and with the packages in
# the folders $3 and following.
venv() {
    venv=$1
    requirements=$2
    shift 2
    manifests=
    for folder in "$@"; do
        manifests="$manifests $folder/pyproject.toml"
    done
    # shellcheck disable=SC2086 # one path for each package
    is_built_from "$venv" "$requirements" $manifests && return
    rm -rf "$venv"
    python3 -m venv "$venv"
    step "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements"
    for folder in "$@"; do
        step "$venv/bin/pip" install --quiet --disable-pip-version-check --editable "$folder"
    done
    # shellcheck disable=SC2086
    record_sources "$venv" "$requirements" $manifests
}

# Installs the packages of a folder's lock file.
npm_ci() {
    is_built_from "$1/node_modules" "$1/package-lock.json" && return
    (cd "$1" && step npm ci --no-audit --no-fund --loglevel=error)
    record_sources "$1/node_modules" "$1/package-lock.json"
}

prepare_python() {
    venv clients/python/.venv clients/python/requirements-test.txt clients/python
}

fetch_python() {
    prepare_python
    lowest_drivers .cache/python-lowest
    limits_suite .cache/limits
    venv .cache/venv/fastapi examples/fastapi/requirements.txt clients/python
    venv .cache/venv/pack clients/python/requirements-build.txt
}

prepare_node() {
    use_node
    npm_ci clients/node
}

fetch_node() {
    prepare_node
    npm_ci examples/express
}

# Builds the Node client, which the suites, the examples and the benchmark import.
build_node() {
    prepare_node
    # shellcheck disable=SC2046 # one path for each file
    set -- $(find clients/node/src clients/node/*.json clients/node/*.ts functions/*.lua -type f)
    is_built_from clients/node/dist "$@" && return
    (cd clients/node && step npm run --silent build -- --log-level error)
    record_sources clients/node/dist "$@"
}

check_python() {
    prepare_python
    cd clients/python
    step .venv/bin/ruff check .
    step .venv/bin/ruff format --check .
    step .venv/bin/mypy
    # Python code in other folders is checked without the rules S, because the benchmark's driver
    # starts programs.
    step .venv/bin/ruff check --config pyproject.toml --ignore S ../../benches/clients ../../examples \
        ../../tests/monitoring
    step .venv/bin/ruff format --check --config pyproject.toml ../../benches/clients ../../examples \
        ../../tests/monitoring
    step .venv/bin/mypy --strict ../../benches/clients/*.py ../../tests/monitoring/application.py
}

# Installs the lowest supported versions of the Python drivers in the folder $1, which comes first on
# Python's path. The virtual environment has the highest.
lowest_drivers() {
    lowest=clients/python/requirements-lowest.txt
    is_built_from "$1" "$lowest" && return
    rm -rf "$1"
    step clients/python/.venv/bin/pip install --quiet --disable-pip-version-check \
        --target "$1" --requirement "$lowest"
    record_sources "$1" "$lowest"
}

# Fetches the source distribution of the library `limits`, which has its tests, into the folder $1.
limits_suite() {
    requirements=clients/python/requirements-test.txt
    is_built_from "$1" "$requirements" && return
    rm -rf "$1"
    mkdir -p "$1"
    step clients/python/.venv/bin/pip download --quiet --disable-pip-version-check --no-deps \
        --no-binary limits --dest "$1" "$(grep '^limits==' "$requirements")"
    tar -xzf "$1"/limits-*.tar.gz -C "$1" --strip-components 1
    record_sources "$1" "$requirements"
}

test_python() {
    prepare_python
    drivers=$PWD/.cache/python-lowest
    lowest_drivers "$drivers"
    limits_suite "$PWD/.cache/limits"
    export LIMITS_SUITE="$PWD/.cache/limits"
    cd clients/python
    # Most tests wait for a server or a deadline. The tests of a file share servers.
    workers='--numprocesses 3 --dist loadfile'
    # shellcheck disable=SC2086 # several options
    step .venv/bin/pytest -q $workers
    # shellcheck disable=SC2086
    step env PYTHONPATH="$drivers" RL_DRIVERS=requirements-lowest.txt .venv/bin/pytest -q $workers \
        tests/test_drivers.py tests/test_timelines.py tests/test_promise_healing.py tests/test_cluster.py \
        tests/test_slots.py tests/test_url.py
}

check_node() {
    prepare_node
    cd clients/node
    step npm run --silent lint
}

test_node() {
    build_node
    npm_ci examples/express
    cd clients/node
    step npm test --silent
    step node test/package.mjs
}

fetch_rust() {
    step cargo fetch --locked
    step cargo fetch --locked --manifest-path clients/rust/lowest/Cargo.toml
}

# The packages of the client in Rust, for cargo.
rust_packages='--package redis-throttle-client --package tower-redis-throttle
    --package example-axum --package bench-rust-client'

# shellcheck disable=SC2086 # several packages
check_rust() {
    step cargo fmt --check $rust_packages
    step cargo clippy --locked $rust_packages --all-targets -- -D warnings
    step cargo clippy --locked $rust_packages --all-targets --all-features -- -D warnings
    # Only the feature `testing` uses the engine. An application must link neither the engine nor the
    # crates that only the engine needs.
    linked=$(step cargo tree --locked --package redis-throttle-client --edges normal \
        --features cluster --prefix none)
    case $linked in
    *redis-throttle-engine*) fail "redis-throttle-client links the engine without \`testing\`" ;;
    esac
}

# shellcheck disable=SC2086 # several packages
test_rust() {
    step cargo test --locked $rust_packages --all-features
    # The suites of Python and Node run on every back end by themselves. Here, the tests on real
    # servers need a run for each of the others.
    for backend in functions script; do
        step env RL_BACKEND=$backend cargo test --locked $rust_packages --all-features \
            --test live --test credentials --test cluster --test example
    done
    # The lock file of the repository has the highest version of the driver.
    cd clients/rust/lowest
    step cargo test --locked
}

# Prints the folders of the modules in Go below the folders given.
go_modules() {
    find "$@" -name node_modules -prune -o -name .venv -prune -o -name go.mod -exec dirname {} \;
}

# Fetches, by `go mod tidy`, also what only the tests of other modules import: the check needs it.
fetch_go() {
    use_go
    root=$PWD
    for module in $(go_modules clients/go examples benches tests); do
        cd "$root/$module"
        for modules in *.mod; do
            case $modules in
            tools.mod) step go mod download -modfile="$modules" ;;
            *) step go mod tidy -diff -modfile="$modules" ;;
            esac
        done
    done
}

check_go() {
    use_go
    # shellcheck disable=SC2046 # several folders
    set -- $(go_modules clients/go examples benches tests)
    unformatted=$(step gofmt -l "$@")
    [ -z "$unformatted" ] || fail "gofmt -w $unformatted"
    root=$PWD
    for module in "$@"; do
        cd "$root/$module"
        for modules in *.mod; do
            [ "$modules" = tools.mod ] || step go mod tidy -diff -modfile="$modules"
        done
        step go vet ./...
        step go tool -modfile="$root/clients/go/tools.mod" staticcheck \
            -checks inherit,ST1000,ST1020,ST1021,ST1022 ./...
    done
    # The adapter has files for systems other than Unix.
    cd "$root/clients/go/goredis"
    step env GOOS=windows go vet .
}

test_go() {
    use_go
    root=$PWD
    for module in $(go_modules clients/go); do
        cd "$root/$module"
        case $module in
        # Its programs are built and run by the test, and gin takes most of a minute to build.
        */pages) step go test . ;;
        *) step go test -race ./... ;;
        esac
    done
    # go.mod has the lowest supported version of the driver, highest.mod the newest. Only tests in
    # which the driver matters run again.
    cd "$root/clients/go/goredis"
    step go test -modfile=highest.mod -skip '^Test(HTTP_|Nothing_stays)' .
}

# Maven fetches what compiles and runs tests only when it does so. Later runs find all compiled.
fetch_java() {
    use_java
    maven verify -Dtest=SlotsTest -Dsurefire.failIfNoSpecifiedTests=false
}

check_java() {
    use_java
    maven test-compile
}

# Prints the files from which the example in Java is built.
example_java_sources() {
    find clients/java examples/spring-boot functions -name target -prune -o -type f -print
}

test_java() {
    use_java
    # The example is packaged in the same run, for its own test.
    maven --projects '!:bench-java-client,!:snippets' verify
    # shellcheck disable=SC2046 # one path for each file
    record_sources examples/spring-boot/target $(example_java_sources)
}

# A failing input is kept in clients/go/testdata/fuzz, new ones in the build cache of Go.
fuzz() {
    use_go
    cd clients/go
    step go test -run '^$' -fuzz FuzzReplies -fuzztime "${1:-20}s" .
}

example_python() {
    venv .cache/venv/fastapi examples/fastapi/requirements.txt clients/python
}

example_node() {
    build_node
    npm_ci examples/express
}

example_rust() {
    step cargo build --locked --package example-axum
}

example_go() {
    use_go
    binary=$PWD/.cache/example-nethttp
    cd examples/nethttp
    step go build -o "$binary" .
}

example_java() {
    use_java
    # shellcheck disable=SC2046
    is_built_from examples/spring-boot/target $(example_java_sources) && return
    package_java example-spring-boot
    # shellcheck disable=SC2046
    record_sources examples/spring-boot/target $(example_java_sources)
}

# Packs the clients, for a machine without this repository. Times are $SOURCE_DATE_EPOCH.
pack() {
    mkdir -p "$1"
    packed=$(cd "$1" && pwd)
    venv .cache/venv/pack clients/python/requirements-build.txt
    (cd clients/python && step ../../.cache/venv/pack/bin/hatchling build -d "$packed") >/dev/null
    build_node
    (cd clients/node && step npm pack --silent --pack-destination "$packed") >/dev/null
    # A crate is packed without a lock file, because a lock file needs the crates of this project in
    # the registry.
    crates=$CARGO_TARGET_DIR/crates
    rm -rf "$crates"
    for folder in engine clients/rust/redis-throttle-client clients/rust/tower-redis-throttle; do
        (cd "$folder" && step cargo package --quiet --no-verify --exclude-lockfile --allow-dirty \
            --target-dir "$crates")
    done
    cp "$crates"/package/*.crate "$packed"
}

bench() {
    venv .cache/venv/bench benches/clients/python/requirements.txt clients/python
    build_node
    npm_ci benches/clients/node
    step cargo build --locked --release --package bench-rust-client
    use_go
    binary=$PWD/.cache/bench-go-client
    (cd benches/clients/go && step go build -o "$binary" .)
    use_java
    package_java bench-java-client
    [ "${1:-}" = pressure ] || return 0
    for language in python node rust go java; do
        ("example_$language")
    done
    # Also builds the gateway.
    step cargo bench --locked --package redis-throttle-gateway --bench gateway --no-run
}

verb=${1:-}
[ $# -eq 0 ] || shift
case $verb in
check | test | example | fetch)
    # With CI set, a missing server fails the tests; without it, they would be skipped.
    export CI=1 NO_COLOR=1
    [ -z "${SERVER:-}" ] || export RL_SERVER="$SERVER"
    [ $# -gt 0 ] || set -- python node rust go java
    for language in "$@"; do
        case $language in
        python | node | rust | go | java)
            printf '\n== %s: %s\n' "$verb" "$language"
            # Run each function in a subshell, because it changes the working folder.
            ("${verb}_$language")
            ;;
        *) fail "unknown language $language: expected python, node, rust, go or java" ;;
        esac
    done
    ;;
bench | fuzz | pack | venv) "$verb" "$@" ;;
npm_ci)
    use_node
    npm_ci "$@"
    ;;
run)
    use_node
    exec "$@"
    ;;
go)
    use_go
    exec go "$@"
    ;;
*) fail "unknown verb: expected one of those in the head of $0" ;;
esac

#!/bin/sh
# Checks the programs that the make targets need, and installs missing ones with apt.
#
#   scripts/install-prerequisites.sh rust       Rust and cargo, if apt has a version that is new enough
#   scripts/install-prerequisites.sh lint       rustfmt and clippy of the same version
#   scripts/install-prerequisites.sh build      make, a C compiler and libclang, for redis-module
#   scripts/install-prerequisites.sh fuzz       a C++ compiler, for libFuzzer
#   scripts/install-prerequisites.sh server     redis-server, or $SERVER, and redis-cli
#   scripts/install-prerequisites.sh promtool   Prometheus and its promtool, to check metrics and alerts
#   scripts/install-prerequisites.sh proxies    nginx, Caddy and HAProxy, to test the gateway behind them
#   scripts/install-prerequisites.sh browser    Chromium, or $CHROMIUM, to test the page of the lab
#   scripts/install-prerequisites.sh dist       dpkg-deb and binutils, to pack a release
#   scripts/install-prerequisites.sh valgrind   valgrind, to count instructions
#   scripts/install-prerequisites.sh pip        Python's pip, to fetch wheels
#   scripts/install-prerequisites.sh python     Python 3.11 with pip and venv
#   scripts/install-prerequisites.sh node       Node with npm; if it is too old, scripts/clients.sh fetches
#                                               a newer one
#   scripts/install-prerequisites.sh go         Go; if it is too old, scripts/clients.sh fetches a newer one
#   scripts/install-prerequisites.sh java       Maven, and a JDK of version 17 or newer
#   scripts/install-prerequisites.sh clients    python, node, go and java
#
# One call may name several of these. If nothing is missing, it prints nothing and does not call apt.
set -eu

fail() {
    printf '%s\n' "redis-throttle: $*" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# Prints the oldest Rust that builds this crate, from Cargo.toml.
minimum_rust() {
    sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' "$(dirname "$0")/../Cargo.toml"
}

# Returns true if version $1 is $2 or newer.
is_at_least() {
    [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]
}

# Returns true if a Rust that apt installs is the one that PATH finds. A Rust of rustup or in another
# folder comes first on PATH, and Debian's packages of Rust and of rustup exclude each other.
may_install_rust() {
    has apt-get || return 1
    ! has rustup || return 1
    case $(command -v rustc) in
    "" | /usr/bin/rustc | /bin/rustc) return 0 ;;
    *) return 1 ;;
    esac
}

minimum=$(minimum_rust)
needs_rust=""
needs_lint=""

check_rust() {
    version=$(rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p')
    if [ -z "$version" ]; then
        state="none is installed"
    elif ! is_at_least "$version" "$minimum"; then
        state="$(command -v rustc) is $version"
    elif ! has cargo; then
        state="cargo is missing"
    else
        return 0
    fi
    needs_rust="Rust $minimum or newer is needed and $state"
    may_install_rust || advise_rustup
}

advise_rustup() {
    if has rustup; then
        fail "$needs_rust: run \`rustup default stable && rustup update stable\`, then try again in a new shell"
    fi
    fail "$needs_rust: install the current stable one with rustup (https://rustup.rs), then try again"
}

check_lint() {
    # Those of a Rust that is replaced do not work with the new one.
    [ -z "$needs_rust" ] && cargo fmt --version >/dev/null 2>&1 &&
        cargo clippy --version >/dev/null 2>&1 && return 0
    may_install_rust || fail "rustfmt and clippy are needed: rustup component add rustfmt clippy"
    needs_lint="rustfmt and clippy are needed"
}

# Adds the packages of a Rust that is new enough. Debian 12 and 13 have one to build browsers, whose
# packages end in -web; later versions of Debian have it as rustc.
choose_rust() {
    for suffix in "" -web; do
        candidate=$(apt-cache show --no-all-versions "rustc$suffix" 2>/dev/null |
            sed -n 's/^Version: \([0-9.]*\).*/\1/p')
        is_at_least "${candidate:-0}" "$minimum" || continue
        need "rustc$suffix"
        need "cargo$suffix"
        [ -z "$needs_lint" ] || need "rustfmt$suffix rust$suffix-clippy"
        return 0
    done
    needs_rust="${needs_rust:-$needs_lint}, and apt has none that is new enough"
    advise_rustup
}

# Looks for a compiler that finds the headers of the C library, which are a package of their own.
has_c_compiler() {
    has cc && printf '#include <stdlib.h>\n' | cc -E -x c - >/dev/null 2>&1
}

# Looks for the development package, because bindgen also needs the headers of libclang.
has_libclang() {
    [ -n "${LIBCLANG_PATH:-}" ] && return 0
    for library in /usr/lib/llvm-*/lib/libclang.so /usr/lib*/libclang.so /usr/local/lib*/libclang.so; do
        [ -e "$library" ] && return 0
    done
    return 1
}

missing=""
need() {
    missing="$missing $1"
}

check_build() {
    has make || need make
    has_c_compiler || need "gcc libc6-dev"
    has_libclang || need libclang-dev
}

check_fuzz() {
    has c++ || need g++
}

check_server() {
    server=${SERVER:-redis-server}
    if [ "$server" = redis-server ]; then
        has redis-server || need redis-server
    else
        has "$server" || fail "SERVER=$server is not a program that can be run"
    fi
    has redis-cli || need redis-tools
}

check_promtool() {
    { has promtool && has prometheus; } || need prometheus
    check_openssl
}

# nginx-light has auth_request. Debian has the proxies in /usr/sbin, which is not on every user's path.
# The tests of TLS make their certificates with it.
check_openssl() {
    has openssl || need openssl
}

check_proxies() {
    check_openssl
    for proxy in nginx:nginx-light caddy:caddy haproxy:haproxy; do
        has "${proxy%:*}" || [ -x "/usr/sbin/${proxy%:*}" ] || need "${proxy#*:}"
    done
}

check_browser() {
    [ -x "${CHROMIUM:-/usr/bin/chromium}" ] || need chromium
}

check_dist() {
    { has dpkg && has dpkg-deb; } || need dpkg
    { has readelf && has objdump; } || need binutils
}

check_valgrind() {
    has valgrind || need valgrind
}

check_pip() {
    has python3 || need python3
    python3 -m pip --version >/dev/null 2>&1 || need python3-pip
}

# Debian's Python has the module venv, but the copy of pip that venv installs is in another package.
check_python() {
    check_pip
    check_openssl
    python3 -c 'import ensurepip, venv' 2>/dev/null || need python3-venv
    has python3 || return 0
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "Python 3.11 or newer is needed and this is $(python3 --version): install it, then try again"
}

check_node() {
    check_openssl
    has node || need nodejs
    has npm || need npm
}

check_go() {
    has go || need golang-go
}

check_java() {
    has javac || need default-jdk-headless
    has mvn || need maven
}

check_clients() {
    check_python
    check_node
    check_go
    check_java
}

can_be_root() {
    [ "$(id -u)" -eq 0 ] || has sudo
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# Says that the package $1 also starts a service, on port $2 if it has one.
unused_service() {
    echo "The $1 package also starts a service${2:+ on port $2}, which this project does not use."
    echo "To stop it: sudo systemctl disable --now ${1%-light}"
}

install_missing() {
    has apt-get || fail "install these and try again (named as on Debian):$missing"
    # Which versions apt has is known after an update. Without root, the last one decides.
    if can_be_root; then
        echo "Looking in apt for:$missing${needs_rust:+ Rust}${needs_lint:+ rustfmt clippy}"
        as_root apt-get -o DPkg::Lock::Timeout=300 update
    fi
    [ -z "$needs_rust$needs_lint" ] || choose_rust
    can_be_root || fail "this needs root, and there is no sudo here. As root: apt-get install$missing"
    echo "Installing with apt:$missing"
    # shellcheck disable=SC2086 # one argument for each package
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
        install --yes --no-install-recommends $missing
    # Debian starts the service of a package at once where systemd runs.
    [ -d /run/systemd/system ] || return 0
    for service in redis-server:6379 prometheus:9090 nginx-light:80 caddy:80 haproxy:; do
        case " $missing " in
        *" ${service%:*} "*) unused_service "${service%:*}" "${service#*:}" ;;
        esac
    done
}

for part in "$@"; do
    case $part in
    rust | lint | build | fuzz | server | promtool | proxies | browser | dist | valgrind | pip | python | node | \
        go | java | clients)
        "check_$part"
        ;;
    *) fail "unknown part $part: expected one of those in the head of $0" ;;
    esac
done
[ -z "$missing$needs_rust$needs_lint" ] || install_missing

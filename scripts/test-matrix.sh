#!/bin/sh
# Runs the end-to-end suite and the suite of the function library on every server of the matrix, and
# prints a table of the results. tests/rules and the full comparison of module and library do not depend
# on the server's version: they run on redis-7.0 and valkey-9.1, the others run a tenth of the comparison.
#
#   RL_MODULE=... RL_MODULE_FAULTS=... scripts/test-matrix.sh CACHE [NAME...]
#
# With SERVERS=FOLDER it takes the servers of that folder instead of fetching any: programs called NAME,
# or NAME/server, each with the arguments of redis-server, and runs everything on each. A server that
# cannot be fetched counts as failed, unless MATRIX_ALLOW_MISSING=1.
set -eu

cache=$1
shift
mkdir -p "$cache"
table=$cache/matrix.txt
failed=0
: >"$table"

# Prints `NAME PATH` for each server of the folder $1, or for those named after it.
servers_in() {
    folder=$(cd "$1" && pwd)
    shift
    for entry in "$folder"/*; do
        name=${entry##*/}
        if [ $# -gt 0 ]; then
            case " $* " in
            *" $name "*) ;;
            *) continue ;;
            esac
        fi
        for server in "$entry" "$entry/server"; do
            if [ -f "$server" ] && [ -x "$server" ]; then echo "$name $server"; fi
        done
    done
}

if [ -n "${SERVERS:-}" ]; then
    known=$(servers_in "$SERVERS" | sed 's/ .*//')
else
    known=$(sed -n "/^servers='/,/^'/s/^\([a-z]*-[0-9.]*\) .*/\1/p" scripts/fetch-servers.sh)
fi
known=$(echo "$known" | tr '\n' ' ')
for name in "$@"; do
    case " $known " in
    *" $name "*) ;;
    *)
        echo "redis-throttle: the matrix has no server $name: expected some of $known" >&2
        exit 1
        ;;
    esac
done
if [ -n "${SERVERS:-}" ]; then
    servers_in "$SERVERS" "$@" >"$cache/servers.txt"
else
    scripts/fetch-servers.sh "$cache" "$@" >"$cache/servers.txt"
fi

# Sets `suites` and `steps`, the length of the comparison, for the server $1. Without `steps` it has its
# full length. The servers of a folder get everything.
suites_for() {
    suites="--test e2e --test functions"
    steps=24000
    case "${SERVERS:+all} $1" in
    all* | *redis-7.0 | *valkey-9.1)
        suites="--test rules $suites"
        steps=
        ;;
    esac
}

while read -r name server; do
    if [ "$server" = - ]; then
        printf '%-11s %-8s %s\n' "$name" missing "could not be fetched, see above" >>"$table"
        [ "${MATRIX_ALLOW_MISSING:-0}" = 1 ] || failed=1
        continue
    fi
    version=$("$server" --version | sed -n 's/.*v=\([0-9.]*\).*/\1/p')
    log=$cache/$name.log
    # One server comes with another module. With the other servers, the test that loads another
    # module proves less.
    neighbour=$(dirname "$server")/falkordb.so
    [ -e "$neighbour" ] || neighbour=
    printf '\n== %s (%s)%s\n' "$name" "$version" "${neighbour:+, also with ${neighbour##*/}}"
    suites_for "$name"
    # The suites take one to five minutes. One that hangs must not take the time of the others.
    # shellcheck disable=SC2086 # several suites
    if env SERVER="$server" NEIGHBOUR="$neighbour" ${steps:+"RL_DIFFERENTIAL_CALLS=$steps"} \
        timeout 1200 cargo test --locked --no-fail-fast $suites -- --test-threads 4 \
        </dev/null >"$log" 2>&1; then
        result=passed
    else
        result=FAILED
        failed=1
        printf 'The last 40 lines of %s:\n\n' "$log"
        tail -n 40 "$log"
        printf '\nTo repeat it alone: make test-matrix ONLY=%s\n\n' "$name"
    fi
    counts=$(sed -n 's/^test result: [a-zA-Z]*\. \(.* failed\).*finished in \(.*\)$/\1 in \2/p' "$log" |
        sed ':all; N; $!b all; s/\n/; /g')
    counts=$counts${neighbour:+, with ${neighbour##*/}}
    printf '%s\n' "$counts"
    printf '%-11s %-8s %-7s %s\n' "$name" "$result" "$version" "$counts" >>"$table"
done <"$cache/servers.txt"

if [ ! -s "$table" ]; then
    echo "redis-throttle: $SERVERS has no program NAME or NAME/server" >&2
    exit 1
fi
printf '\n%-11s %-8s %-7s %s\n' server result version tests
cat "$table"
exit "$failed"

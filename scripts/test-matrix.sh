#!/bin/sh
# Runs the end-to-end suite and the suite of the function library on every server of the matrix, and
# prints a table of the results.
#
#   RL_MODULE=... RL_MODULE_FAULTS=... scripts/test-matrix.sh CACHE [NAME...]
#
# With SERVERS=FOLDER it takes the servers of that folder instead of fetching any: programs called NAME,
# or NAME/server, each with the arguments of redis-server. A server that cannot be fetched counts as
# failed, unless MATRIX_ALLOW_MISSING=1.
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
    servers_in "$SERVERS" "$@" >"$cache/servers.txt"
else
    scripts/fetch-servers.sh "$cache" "$@" >"$cache/servers.txt"
fi

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
    # The suites take two to five minutes. One that hangs must not take the time of the others.
    if SERVER=$server NEIGHBOUR=$neighbour timeout 1200 cargo test --locked --no-fail-fast \
        --test e2e --test functions </dev/null >"$log" 2>&1; then
        result=passed
    else
        result=FAILED
        failed=1
        sed -n '/^failures:/,$p' "$log"
        tail -n 3 "$log"
    fi
    counts=$(sed -n 's/^test result: [a-zA-Z]*\. \(.* failed\).*finished in \(.*\)$/\1 in \2/p' "$log" |
        sed ':all; N; $!b all; s/\n/; /g')
    counts=$counts${neighbour:+, with ${neighbour##*/}}
    printf '%s\n' "$counts"
    printf '%-11s %-8s %-7s %s\n' "$name" "$result" "$version" "$counts" >>"$table"
done <"$cache/servers.txt"

if [ ! -s "$table" ]; then
    echo "redis-throttle: the matrix has no server of that name" >&2
    exit 1
fi
printf '\n%-11s %-8s %-7s %s\n' server result version tests
cat "$table"
exit "$failed"

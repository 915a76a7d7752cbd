#!/bin/sh
# The end-to-end suite, and that of the library of functions, against every server of the matrix,
# and a table of what came of it.
#
#   RL_MODULE=... RL_MODULE_FAULTS=... scripts/test-matrix.sh CACHE [NAME...]
#
# A server that cannot be had counts as failed, unless MATRIX_ALLOW_MISSING=1.
set -eu

cache=$1
shift
mkdir -p "$cache"
table=$cache/matrix.txt
failed=0
: >"$table"

scripts/fetch-servers.sh "$cache" "$@" >"$cache/servers.txt"

while read -r name server; do
    if [ "$server" = - ]; then
        printf '%-11s %-8s %s\n' "$name" missing "could not be fetched, see above" >>"$table"
        [ "${MATRIX_ALLOW_MISSING:-0}" = 1 ] || failed=1
        continue
    fi
    version=$("$server" --version | sed -n 's/.*v=\([0-9.]*\).*/\1/p')
    log=$cache/$name.log
    # What one of them brings to be loaded beside ours; without it the test of that proves less.
    neighbour=$(dirname "$server")/falkordb.so
    [ -e "$neighbour" ] || neighbour=
    printf '\n== %s (%s)%s\n' "$name" "$version" "${neighbour:+, also beside ${neighbour##*/}}"
    if SERVER=$server NEIGHBOUR=$neighbour cargo test --locked --no-fail-fast \
        --test e2e --test functions </dev/null >"$log" 2>&1; then
        result=passed
    else
        result=FAILED
        failed=1
        sed -n '/^failures:/,$p' "$log"
    fi
    counts=$(sed -n 's/^test result: [a-zA-Z]*\. \(.* failed\).*finished in \(.*\)$/\1 in \2/p' "$log" |
        sed ':all; N; $!b all; s/\n/; /g')
    counts=$counts${neighbour:+, beside ${neighbour##*/}}
    printf '%s\n' "$counts"
    printf '%-11s %-8s %-7s %s\n' "$name" "$result" "$version" "$counts" >>"$table"
done <"$cache/servers.txt"

if [ ! -s "$table" ]; then
    echo "redis-throttle: no server of that name in the matrix" >&2
    exit 1
fi
printf '\n%-11s %-8s %-7s %s\n' server result version tests
cat "$table"
exit "$failed"

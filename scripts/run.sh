#!/bin/sh
# Starts a real server with the module in the foreground, on 127.0.0.1 and without persistence.
#
#   scripts/run.sh MODULE PORT [DIRECTIVE...]      each DIRECTIVE is passed to the server
#
# $SERVER replaces redis-server.
set -eu

module=$(readlink -f "$1")
port=$2
shift 2
server=${SERVER:-redis-server}
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

"$server" --bind 127.0.0.1 --port "$port" --dir "$directory" --save '' --appendonly no \
    --always-show-logo no --loadmodule "$module" "$@" &
pid=$!
trap 'kill -TERM "$pid" 2>/dev/null || true' INT TERM HUP

running() {
    kill -0 "$pid" 2>/dev/null
}

# Succeeds if the started process replies. A reply from another server on the port does not count.
ready() {
    redis-cli -p "$port" INFO server 2>/dev/null | tr -d '\r' | grep -qx "process_id:$pid"
}

while running && ! ready; do
    sleep 0.1
done

if running; then
    cat <<EOF

The server listens on 127.0.0.1:$port and saves nothing. In another terminal:

    redis-cli -p $port RL.GCRA user:42 6 10 60

Stop it with Ctrl-C.

EOF
fi

# A trapped signal ends `wait` early: wait again until the server has ended.
status=0
wait "$pid" || status=$?
while running; do
    status=0
    wait "$pid" || status=$?
done
if [ "$status" -ne 0 ]; then
    echo "The server stopped: see its lines above. Port in use? Try make run PORT=7778" >&2
fi
exit "$status"

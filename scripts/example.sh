#!/bin/sh
# Starts a server with the module and an example application that uses it. Ctrl-C ends both.
#
#   scripts/example.sh NAME MODULE PORT HTTP_PORT [ARGUMENT...]
#
# NAME is fastapi, express, axum, nethttp or spring-boot. Each ARGUMENT is passed to the server. The
# application keeps running if the server is stopped.
#
# $SERVER replaces redis-server, $RL_CLIENTS is the target directory of the example in Rust.
set -eu

name=$1
module=$(readlink -f "$2")
port=$3
http_port=$4
shift 4
here=$(readlink -f "$(dirname "$0")")
root=$(dirname "$here")
server=${SERVER:-redis-server}
directory=$(mktemp -d)
server_pid=
application_pid=

fail() {
    printf '%s\n' "redis-throttle: $*" >&2
    exit 1
}

finish() {
    trap - EXIT INT TERM HUP
    for pid in $application_pid $server_pid; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$directory"
}
trap finish EXIT
trap 'exit 0' INT TERM HUP

is_taken() {
    python3 - "$1" <<'PYTHON'
import socket
import sys

with socket.socket() as probe:
    sys.exit(0 if probe.connect_ex(("127.0.0.1", int(sys.argv[1]))) == 0 else 1)
PYTHON
}

for wanted in "$port" "$http_port"; do
    ! is_taken "$wanted" ||
        fail "port $wanted is in use: make example-$name PORT=7778 HTTP_PORT=8081"
done

start_server() {
    "$server" --bind 127.0.0.1 --port "$port" --dir "$directory" --save '' --appendonly no \
        --always-show-logo no --loadmodule "$module" "$@" >"$directory/server.log" 2>&1 &
    server_pid=$!
}

# shellcheck disable=SC2093 # each runs in a separate process
start_application() {
    export REDIS_URL="redis://127.0.0.1:$port" HOST=127.0.0.1 PORT="$http_port"
    case $name in
    fastapi)
        cd "$root/examples/fastapi"
        exec "$root/.cache/venv/fastapi/bin/python" app.py
        ;;
    express)
        cd "$root/examples/express"
        exec "$here/clients.sh" run node "$root/examples/express/server.js"
        ;;
    axum) exec "${RL_CLIENTS:-$root/target/clients}/debug/example-axum" ;;
    nethttp) exec "$root/.cache/example-nethttp" ;;
    spring-boot)
        # The option makes the start quicker, as `mvn spring-boot:run` does.
        exec java -XX:TieredStopAtLevel=1 -jar "$root/examples/spring-boot/target/example-spring-boot.jar"
        ;;
    *) fail "unknown example $name: expected fastapi, express, axum, nethttp or spring-boot" ;;
    esac
}

# Waits for $1 while the process $2 runs. The remaining arguments are a command that succeeds once $1
# is there.
await() {
    what=$1
    process=$2
    shift 2
    tries=0
    until "$@"; do
        kill -0 "$process" 2>/dev/null || {
            cat "$directory/server.log" >&2
            fail "$what has ended: see its lines above"
        }
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || fail "$what did not start"
        sleep 0.2
    done
}

start_server "$@"
await "the server" "$server_pid" is_taken "$port"
(start_application) &
application_pid=$!
await "the application" "$application_pid" is_taken "$http_port"

cat <<EOF

The application listens on http://127.0.0.1:$http_port, its server on port $port.
In another terminal, eleven times; the eleventh is a 429:

    for n in \$(seq 11); do curl -i http://127.0.0.1:$http_port/; echo; done

Then stop the server, and go on: the page is served all the same.

    kill $server_pid
    curl -i -w '\n%{time_total} s\n' http://127.0.0.1:$http_port/

Stop both with Ctrl-C.

EOF
wait "$application_pid"

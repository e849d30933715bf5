#!/bin/bash
# Runs every fuzz target.
#
#   tools/fuzz.sh [SECONDS_EACH (300)] [TARGET...]
#   tools/fuzz.sh --short [SECONDS_EACH (3)] [TARGET...]
#
# Without --short, cargo-fuzz builds the targets with the address sanitizer. That needs nightly Rust.
# Without it, RUSTC_BOOTSTRAP=1 makes the stable compiler accept sanitizers, too. Inputs that make a
# target fail are kept in fuzz/artifacts, the corpus in fuzz/corpus.
#
# With --short, a stable compiler builds them with coverage and without a sanitizer. Each target
# starts with the same seed and the same corpus. `make test-all` does this. Inputs that make a
# target fail are kept in target/fuzz/artifacts.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tally.sh
short='' seconds=300
if [ "${1:-}" = --short ]; then short=short seconds=3; shift; fi
if [ $# -gt 0 ]; then seconds=$1; shift; fi
targets=("$@")
if [ $# -eq 0 ]; then
    for file in fuzz/fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi

# Copies real inputs to start with, from the tests, to the folder of a corpus.
fill_corpus() {
    mkdir -p "$1/ptx" "$1/fatbins" "$1/trees" "$1/keylists" "$1/includes" "$1/greetings"
    printf '# lab\nanna ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA quota=a devices=0,1\n' \
        >"$1/keylists/clients"
    printf -- '-I /inc -DM=<ah>\0#include "ah"\n#define N "bh"\n#include N\n#include </xh>\n' \
        >"$1/includes/forms"
    # The target makes control characters of exclamation marks.
    printf 'motd\n!penstock-bridge! 1 user=5 release=0.1.0 direct=4567 at=::1 key=%s once=%064d\n' \
        ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA 7 >"$1/greetings/direct"
    cp crates/tools/doctor/tests/trees/*.tree "$1/trees"
    cp crates/base/ptx/tests/ptx/*.ptx "$1/ptx"
    cp crates/base/ptx/tests/ptx/*.fatbin "$1/fatbins"
}

prepare_long() {
    fuzz=(cargo +nightly fuzz)
    if ! cargo +nightly --version >/dev/null 2>&1; then
        fuzz=(cargo fuzz)
        export RUSTC_BOOTSTRAP=1
    fi
    local tools=$PWD/.cache/cargo-fuzz
    if [ ! -x "$tools/bin/cargo-fuzz" ]; then
        echo "installing cargo-fuzz"
        cargo install --quiet --root "$tools" cargo-fuzz --version 0.13.2 || exit 1
    fi
    export PATH=$tools/bin:$PATH CARGO_TARGET_DIR=$PWD/fuzz/target
    logs=$CARGO_TARGET_DIR
    mkdir -p "$logs"
    fill_corpus fuzz/corpus
}
run_long() {
    "${fuzz[@]}" run "$1" -- -max_total_time="$seconds" -rss_limit_mb=4096 -print_final_stats=1
}

# The flags of cargo-fuzz that stable compilers know.
coverage="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
coverage+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
coverage+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
prepare_short() {
    local host
    host=$(rustc -vV | sed -n 's/^host: //p')
    CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")/fuzz
    export CARGO_TARGET_DIR
    logs=$CARGO_TARGET_DIR/artifacts
    mkdir -p "$logs"
    # With --target, the flags are not for build scripts and macros.
    RUSTFLAGS=$coverage cargo build --quiet --manifest-path fuzz/Cargo.toml --profile short \
        --target "$host" "${targets[@]/#/--bin=}" || { echo "the fuzz targets do not build"; exit 1; }
    built=$CARGO_TARGET_DIR/$host/short
    corpus=$(mktemp -d "${TMPDIR:-/tmp}/penstock-fuzz.XXXXXX")
    trap 'rm -rf "$corpus"' EXIT
    fill_corpus "$corpus"
}
run_short() {
    mkdir -p "$corpus/$1"
    "$built/$1" -seed=1 -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 \
        -print_final_stats=1 -artifact_prefix="$logs/$1-" "$corpus/$1"
}

tally_plan fuzz ${#targets[@]}
if [ -n "$short" ]; then prepare_short; else prepare_long; fi
for target in "${targets[@]}"; do
    log=$logs/$target.log
    tally_begin "fuzz/$target"
    if "run_${short:-long}" "$target" >"$log" 2>&1; then
        report ok "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log") executions"
    else
        report FAIL "$(grep -m 1 -A 1 'panicked at' "$log" | tr '\n' ' ')"
        tail -n 30 "$log" | sed 's/^/        | /'
    fi
done
tally_end

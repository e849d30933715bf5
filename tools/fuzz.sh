#!/bin/bash
# Runs every fuzz target: tools/fuzz.sh [SECONDS_EACH (300)] [TARGET...]
#
# Sanitizers need nightly Rust. Without it, RUSTC_BOOTSTRAP=1 makes the stable compiler accept them,
# too. Inputs that make a target fail are kept in fuzz/artifacts, the corpus in fuzz/corpus.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-300}
[ $# -gt 0 ] && shift
fuzz=(cargo +nightly fuzz)
if ! cargo +nightly --version >/dev/null 2>&1; then
    fuzz=(cargo fuzz)
    export RUSTC_BOOTSTRAP=1
fi
tools=$PWD/.cache/cargo-fuzz
if [ ! -x "$tools/bin/cargo-fuzz" ]; then
    echo "installing cargo-fuzz"
    cargo install --quiet --root "$tools" cargo-fuzz --version 0.13.2
fi
export PATH=$tools/bin:$PATH CARGO_TARGET_DIR=$PWD/fuzz/target
[ $# -gt 0 ] || mapfile -t targets < <(cd fuzz && "${fuzz[@]}" list)
[ $# -eq 0 ] || targets=("$@")
# Real inputs to start with, from the tests.
mkdir -p fuzz/corpus/ptx fuzz/corpus/fatbins
cp crates/ptx/tests/ptx/*.ptx fuzz/corpus/ptx
cp crates/ptx/tests/ptx/*.fatbin fuzz/corpus/fatbins
passed=0 failed=0
for target in "${targets[@]}"; do
    log=$CARGO_TARGET_DIR/$target.log
    mkdir -p "$CARGO_TARGET_DIR"
    if "${fuzz[@]}" run "$target" -- -max_total_time="$seconds" -rss_limit_mb=4096 -print_final_stats=1 >"$log" 2>&1; then
        echo "ok   fuzz/$target  $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") executions"
        passed=$((passed + 1))
    else
        echo "FAIL fuzz/$target"
        tail -n 40 "$log"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]

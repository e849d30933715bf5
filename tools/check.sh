#!/bin/bash
# The inner loop: formatting, spelling, the rules of tools/policy, Clippy, and the tests that use no
# device and no daemon. After a change to one crate it takes a minute or two.
#
#   tools/check.sh
#
# It keeps an incremental build of its own (profile `dev`), beside those of `make build` and
# `make test`.
set -u
cd "$(dirname "$0")/.." || exit 1
RUSTUP_TOOLCHAIN=${RUSTUP_TOOLCHAIN:-$(tools/toolchain.sh)}
if [ -n "$RUSTUP_TOOLCHAIN" ]; then export RUSTUP_TOOLCHAIN; else unset RUSTUP_TOOLCHAIN; fi
[ -e "${CARGO_HOME:-$HOME/.cargo}/env" ] && . "${CARGO_HOME:-$HOME/.cargo}/env"
failed=0
step() {
    local name=$1 started=$SECONDS output
    shift
    if output=$("$@" 2>&1); then
        printf 'ok   %-16s %4d s\n' "$name" $((SECONDS - started))
    else
        printf 'FAIL %-16s %4d s\n%s\n' "$name" $((SECONDS - started)) "$output"
        failed=1
    fi
}
step format tools/format.sh --check
step spelling .venv/bin/typos --config typos.toml --format brief
step policy .venv/bin/python tools/policy/check.py
step clippy cargo clippy --quiet --workspace --all-targets -- -D warnings
TEST_PROFILE=dev tools/cargo-tests.py pure || failed=1
exit $failed

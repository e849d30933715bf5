#!/bin/bash
# Checks that all crates compile with the oldest supported Rust: `rust-version` in Cargo.toml.
#
# In the usual case, rust-toolchain.toml names that version, so that the other tests check this.
# Otherwise this needs the toolchain with that version, and is skipped (code 77) without it.
set -u
cd "$(dirname "$0")/.." || exit 1
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
pinned=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
if [ "$(printf '%s\n%s\n' "$oldest" "$pinned" | sort -V | head -n 1)" != "$oldest" ]; then
    echo "Cargo.toml wants Rust $oldest at least, and rust-toolchain.toml names $pinned"
    exit 1
fi
here=$(rustc --version | awk '{print $2}')
case $here. in
    "$oldest".*)
        echo "the compiler of all tests, $here, is the oldest supported one"
        exit 0 ;;
esac
# rustup must not download a compiler here, so only installed ones are asked.
wanted="s/^\(${oldest//./\\.}\(\.[0-9]*\)\?\)-.*/\1/p"
for name in $(rustup toolchain list 2>/dev/null | sed -n "$wanted"); do
    if rustc "+$name" --version >/dev/null 2>&1; then
        cargo "+$name" check --quiet --workspace --all-targets || exit 1
        echo "all crates compile with Rust $oldest"
        exit 0
    fi
done
echo "the compiler is $here, and Rust $oldest is not there: rustup toolchain install $oldest"
exit 77

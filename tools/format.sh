#!/bin/bash
# Formats all sources: Rust, C, CUDA and Python. With --check it only tells which files differ.
#
#   tools/format.sh [--check]
set -u
if ! cargo fmt --version >/dev/null 2>&1; then
    echo "cargo has no fmt: rustup component add rustfmt"
    exit 77
fi
cd "$(dirname "$0")/.." || exit 1
rust=() c=(-i) python=()
if [ "${1:-}" = --check ]; then rust=(--check) c=(--dry-run -Werror) python=(--check); fi
# policy.toml says why the first two and the last are left out. The others are output of Penstock.
left_out='^(tests/model/found|include/CL|crates/tools/check/src)/'
left_out+='|^crates/base/ptx/src/translate/prelude/'
left_out+='|^tests/cuda/layout.h$'
# Their sizes are part of the simulated figures, which are exact.
left_out+='|^examples/libwater/.*\.cl$'
mapfile -t sources < <(git ls-files '*.c' '*.h' '*.cu' '*.cl' '*.cpp' | grep -vE "$left_out")
code=0
cargo fmt --all "${rust[@]}" || code=1
.venv/bin/clang-format "${c[@]}" "${sources[@]}" || code=1
.venv/bin/ruff format --quiet "${python[@]}" . || code=1
exit $code

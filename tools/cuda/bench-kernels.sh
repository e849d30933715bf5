#!/bin/bash
# Compiles the benchmark's kernels (crates/tools/bench/src/device/kernels.cl) as CUDA C++ to
# kernels.ptx beside them, for GPUs of CUDA's own driver. The result is in the repository, because machines with
# a GPU may lack a compiler. A test fails if it is out of date.
#
# The PTX states version 7.0, which drivers since CUDA 11.0 accept. It uses nothing newer, as ptxas
# checks here.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
toolkit=${CUDA:-$(echo "$root"/.venv-cuda/lib/python3*/site-packages/nvidia/cu13)}
here=$root/crates/tools/bench/src/device
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$toolkit/bin/nvcc" -ptx -x cu -std=c++17 -arch=compute_75 \
    "-I$root/crates/pool/ggas/include" -o "$work/kernels.ptx" "$here/kernels.cl"
sources=$(cat "$here/kernels.cl" "$root/crates/pool/ggas/include/ggas.h" | cksum | cut -d ' ' -f 1)
{
    echo "// Made by tools/cuda/bench-kernels.sh; cksum of its sources: $sources"
    sed -e 's/^\.version .*/.version 7.0/' -e '/^\/\//d' -e '/^$/d' "$work/kernels.ptx"
} >"$here/kernels.ptx"
"$toolkit/bin/ptxas" -arch=sm_75 -o "$work/kernels.cubin" "$here/kernels.ptx"
"$toolkit/bin/ptxas" -arch=sm_90 -o "$work/kernels.cubin" "$here/kernels.ptx"

#!/bin/bash
# Packs what tells how Penstock works on an NVIDIA GPU: our programs, the tests compiled, and a
# script that runs all of it. The other machine needs only the GPU with its driver, and Python.
#
#   tools/gpu-kit/build.sh [ARCHIVE]
#
# ARCHIVE is target/gpu-kit/gpu-kit.tar.xz if it is not given. PENSTOCK_BIN names the folder with
# the built programs, and CUDA a toolkit (default: .venv-cuda). With PENSTOCK_KIT_POCL=no the kit
# has no PoCL. Fails if the archive is larger than 48 MiB.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../pool.sh"
archive=$(realpath -m "${1:-$PENSTOCK_TARGET/gpu-kit/gpu-kit.tar.xz}")
toolkit=${CUDA:-$(echo "$POOL_ROOT"/.venv-cuda/lib/python3*/site-packages/nvidia/cu13)}
work=$PENSTOCK_TARGET/gpu-kit
kit=$work/gpu-kit
programs=$work/programs
archive_bytes_max=$((48 << 20))
fail() { echo "$1" >&2; exit 1; }
[ -x "$PENSTOCK_BIN/penstock" ] && [ -e "$PENSTOCK_BIN/cuda/libcuda.so.1" ] ||
    fail "no penstock with CUDA's libraries in $PENSTOCK_BIN: run \`make build\` first"
[ -x "$toolkit/bin/nvcc" ] || fail "no nvcc in $toolkit: run \`tools/setup.sh cuda\`"

# Machine code for the H100 and H200, and PTX that all drivers since CUDA 13.0 compile for any GPU.
arch='-gencode arch=compute_75,code=compute_75 -gencode arch=compute_90,code=sm_90'
rm -rf "$kit"
mkdir -p "$kit"/{bin,lib/cuda,lib/runtime,tests/cuda,tests/examples,tests/c,programs} "$programs"

cuda_programs() {
    local tests=$POOL_ROOT/tests/cuda libraries=$PENSTOCK_BIN/cuda
    local options=(-j"$(nproc)" --no-print-directory "CUDA=$toolkit" "ARCH=$arch")
    make -C "$POOL_ROOT/examples/cuda" "${options[@]}" "OUT=$programs/examples"
    make -C "$tests" "${options[@]}" "OUT=$programs/cuda" "LIBCUDA=$libraries"
    gcc -std=gnu17 -O1 -w -o "$programs/cuda/native" "$tests/native.c" -ldl
    gcc -std=gnu17 -O1 -w -o "$programs/cuda/pinned" "$tests/pinned.c" -ldl -lpthread
    gcc -std=gnu17 -O1 "-I$toolkit/include" "-I$POOL_ROOT/include" "$tests/native_heaps.c" \
        -o "$programs/cuda/native_heaps" "-L$libraries" -l:libcuda.so.1 -ldl
    "$toolkit/bin/nvcc" -ptx -std=c++17 -arch=compute_75 "-I$POOL_ROOT/crates/pool/ggas/include" \
        -o "$programs/heap.ptx" "$POOL_ROOT/tests/cuda/heap_kernels.cu"
    # The module uses nothing newer, and older drivers read it.
    sed -i 's/^\.version .*/.version 7.0/' "$programs/heap.ptx"
    gcc -std=gnu17 -O2 -w -o "$programs/speed" "$here/programs/speed.c" -ldl
}

c_tests() {
    local file name sources
    mkdir -p "$programs/c"
    for file in "$POOL_ROOT"/tests/c/*.c; do
        name=$(basename "$file" .c)
        case $name in harness | errors | *-* | stress* | multi_* | torn) continue ;; esac
        sources=("$file")
        for source in "${file%.c}"-*.c; do [ -e "$source" ] && sources+=("$source"); done
        [ "$programs/c/$name" -nt "$file" ] && continue
        gcc -std=c11 -D_GNU_SOURCE -O1 "-I$POOL_ROOT/include" -o "$programs/c/$name" \
            "${sources[@]}" "$POOL_ROOT"/tests/c/{harness,errors}.c -lOpenCL -lpthread -lm
    done
}

copy() {
    cp "$PENSTOCK_BIN"/{penstock,penstockd,penstock-check} "$(command -v clinfo)" "$kit/bin"
    cp "$PENSTOCK_BIN/libpenstock_opencl.so" "$kit/lib"
    cp "$PENSTOCK_BIN"/cuda/*.so* "$kit/lib/cuda"
    local loader
    loader=$(ldconfig -p | sed -n 's/.*libOpenCL\.so\.1 .*=> //p' | head -n 1)
    cp -L "$loader" "$kit/lib/libOpenCL.so.1"
    # NVIDIA's runtime, for programs beside the pool on a machine without a toolkit.
    cp -L "$toolkit/lib/libcudart.so.13" "$kit/lib/runtime"
    find "$programs/cuda" "$programs/examples" -type f -executable -printf '%h %f\n' |
        while read -r folder name; do
            cp "$folder/$name" "$kit/tests/${folder##*/}/$name"
        done
    find "$programs/c" -type f -executable -exec cp {} "$kit/tests/c" \;
    cp "$POOL_ROOT"/tests/cuda/*.py "$kit/tests/cuda"
    cp "$POOL_ROOT/tests/programs/compare_clinfo.py" "$programs/heap.ptx" "$kit/tests"
    cp "$here"/programs/*.py "$programs/speed" "$kit/programs"
    cp -r "$here/run" "$here/kit" "$kit"
    find "$kit" -name __pycache__ -prune -exec rm -rf {} +
    # A static runtime is found by its symbols, so those of the examples stay.
    strip "$kit"/bin/* "$kit"/tests/c/* "$kit/programs/speed"
    find "$kit/lib" -type f -name '*.so*' -exec strip --strip-unneeded {} +
    {
        git -C "$POOL_ROOT" describe --always --dirty || echo unknown
        basename "$PENSTOCK_BIN"
    } >"$kit/VERSION"
}

# With blocks of 512 bytes the archive ends with two of them.
pack() {
    local owner=(--owner=0 --group=0 --numeric-owner)
    tar -C "$1" --blocking-factor=1 --sort=name "${owner[@]}" -c gpu-kit
}
compress() { xz --threads=1 --x86 --lzma2=preset=6,dict=64MiB; }

trap '[ $? -eq 0 ] || tail -n 20 "$work/build.log" >&2' EXIT
cuda_programs >"$work/build.log" 2>&1
c_tests
copy
mkdir -p "$(dirname "$archive")"
{
    # PoCL takes minutes to pack and seldom changes. A file of xz may have several parts, and so may
    # an archive of tar, if only the last part has its end.
    if [ "${PENSTOCK_KIT_POCL:-yes}" != no ]; then
        if [ ! -e "$work/pocl.part.xz" ]; then
            rm -rf "$work/pocl"
            "$here/pocl.sh" "$work/pocl/gpu-kit/lib/pocl" "$work/pocl/work"
            pack "$work/pocl" | head -c -1024 | compress >"$work/pocl.part.new"
            mv -f "$work/pocl.part.new" "$work/pocl.part.xz"
        fi
        cat "$work/pocl.part.xz"
    fi
    pack "$work" | compress
} >"$archive.new"
mv -f "$archive.new" "$archive"
bytes=$(stat -c %s "$archive")
echo "$archive: $((bytes / 1048576)) MiB of 48"
[ "$bytes" -le "$archive_bytes_max" ] || fail "the archive is too large"

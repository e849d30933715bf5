#!/bin/bash
# Tests and measurements that need an NVIDIA GPU with CUDA's own driver: symmetric heaps on the GPU,
# and the cost of communication with it.
#
#   tests/cuda/gpu.sh [--quick]
#
# 1. tests/cuda/native.c on the GPU.
# 2. Heaps: a GPU and a CPU device in one worker and in two, by shared memory and by the proxy; two
#    GPUs, or one GPU as two devices with one context (PENSTOCK_CUDA_EACH). Each word of each
#    message is checked. Abort, reset and the loss of a node are tried.
# 3. Litmus: 1,000,000 messages between GPU and CPU device, and as many between the kernels of two
#    contexts (LITMUS_ROUNDS).
# 4. `penstock bench comm --gpus 1` and `--gpus 2`: ping-pong, bandwidth and barrier, and copies
#    through the hosts with CUDA, MPI and TCP, with joules per word from NVML. All results are also
#    kept in target/cuda/gpu.
#
# Without a GPU, `PENSTOCK_LIBCUDA=library tests/cuda/gpu.sh` uses another driver, such as the
# stand-in of native.sh. GPU_NAME is a part of its devices' names. nvcc compiles the modules, from
# .venv-cuda (tools/setup.sh cuda) or CUDA=folder; HEAP_PTX=file names a compiled module. CPU
# devices are PoCL's.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../tools/pool.sh"
libraries=${PENSTOCK_CUDA:-$PENSTOCK_BIN/cuda}
out=$PENSTOCK_TARGET/cuda/gpu
name=${GPU_NAME:-NVIDIA}
quick=()
[ "${1:-}" = --quick ] && quick=(--quick)
toolkit=${CUDA:-$(echo "$POOL_ROOT"/.venv-cuda/lib/python3*/site-packages/nvidia/cu13)}
mkdir -p "$out"
failed=0

[ -e "$libraries/libcuda.so.1" ] || { echo "no libcuda.so.1 in $libraries: run \`make build\` first" >&2; exit 1; }
if [ -z "${PENSTOCK_LIBCUDA:-}" ] && ! ldconfig -p | grep -q 'libcuda\.so\.1'; then
    echo "SKIPPED: no libcuda.so.1 of a driver here"
    exit 77
fi
ptx=${HEAP_PTX:-$out/heap_kernels.ptx}
if [ -z "${HEAP_PTX:-}" ]; then
    # PTX of version 7.0, for drivers since CUDA 11. The module uses nothing newer.
    "$toolkit/bin/nvcc" -ptx -std=c++17 -arch=compute_75 "-I$POOL_ROOT/crates/pool/ggas/include" -o "$ptx" "$here/heap_kernels.cu" || exit 1
    sed -i 's/^\.version .*/.version 7.0/' "$ptx"
fi
"${CC:-cc}" -std=gnu17 -O1 -w -o "$out/native" "$here/native.c" -ldl &&
    "${CC:-cc}" -std=gnu17 -O1 "-I$toolkit/include" "-I$POOL_ROOT/include" -o "$out/native_heaps" "$here/native_heaps.c" "-L$libraries" -l:libcuda.so.1 -ldl || exit 1

# run NAME NODES COMMAND...: runs a test on these nodes and prints its verdict.
run() {
    local what=$1 nodes=$2 code
    shift 2
    timeout --kill-after=5 300 env PENSTOCK_NODES="$nodes" LD_LIBRARY_PATH="$libraries" "$@" >"$out/$what.log" 2>&1
    code=$?
    if [ $code -eq 0 ]; then
        echo "ok   gpu/$what"
        sed -n 's/^  /        /p' "$out/$what.log"
    else
        failed=$((failed + 1))
        echo "FAIL gpu/$what: code $code"
        tail -n 15 "$out/$what.log" | sed 's/^/        | /'
    fi
}

trap pool_stop EXIT
trap 'exit 130' INT TERM
POOL_DIR=$(mktemp -d "${TMPDIR:-/tmp}/penstock-test.XXXXXX")
driver=()
[ -n "${PENSTOCK_LIBCUDA:-}" ] && driver=("PENSTOCK_LIBCUDA=$PENSTOCK_LIBCUDA")
rounds=${LITMUS_ROUNDS:-1000000}
# Nodes with the GPU and PoCL: one with the GPU as it is, one with the GPU as two devices. One node
# with only the GPU, and one with only PoCL.
POOL_SERVE_ENV=("${driver[@]}" "POCL_DEVICES=pthread")
pool_serve --listen "unix:$POOL_DIR/gpu.sock" || exit 1
gpu=$POOL_ADDRESS
mkdir "$POOL_DIR/none"
POOL_SERVE_ENV=("${driver[@]}" "OCL_ICD_VENDORS=$POOL_DIR/none" "OPENCL_VENDOR_PATH=$POOL_DIR/none")
pool_serve --listen "unix:$POOL_DIR/alone.sock" || exit 1
alone=$POOL_ADDRESS
POOL_SERVE_ENV=("${driver[@]}" "POCL_DEVICES=pthread" PENSTOCK_CUDA_EACH=2)
pool_serve --listen "unix:$POOL_DIR/each.sock" || exit 1
each=$POOL_ADDRESS
POOL_SERVE_ENV=("POCL_DEVICES=pthread" "PENSTOCK_LIBCUDA=$POOL_DIR/no-driver")
pool_serve --listen "unix:$POOL_DIR/cpu.sock" || exit 1
cpu=$POOL_ADDRESS

run native "$alone" "$out/native"
run heaps-one-worker "$gpu" "$out/native_heaps" "$ptx" "$name"
run heaps-one-gpu-as-two "$each" "$out/native_heaps" "$ptx" "$name"
run litmus "$each" env "PENSTOCK_TEST_LITMUS=$rounds" "$out/native_heaps" "$ptx" "$name"
run heaps-two-workers "$gpu,$cpu" env "PENSTOCK_TEST_VICTIM=${POOL_PIDS[-1]}" "$out/native_heaps" "$ptx" "$name"
pool_stop

bench=(env "${driver[@]}")
for gpus in 1 2; do
    echo
    echo "== the first $gpus of the devices are GPUs; then CPU devices"
    more=(PENSTOCK_CUDA_EACH=1)
    [ "$gpus" = 2 ] && more=(PENSTOCK_CUDA_EACH=2)
    "${bench[@]}" "${more[@]}" "$PENSTOCK_BIN/penstock" bench comm "${quick[@]}" --gpus "$gpus" --devices 2 | tee "$out/comm-$gpus.txt"
    [ "${PIPESTATUS[0]}" -eq 0 ] || failed=$((failed + 1))
done
[ "$failed" -eq 0 ]

#!/bin/bash
# CUDA programs on a node whose worker uses CUDA's driver interface, without a GPU. The driver is a
# stand-in with the kernels that native.c and native_heaps.c need, or our own libcuda.so.1 on top of
# a second daemon with an OpenCL device ("the chain"), where any program runs.
#
#   tests/cuda/native.sh [NAME...]
#
# NAME is a program that tests/cuda/run.sh has built or a Python program beside this file, which run
# on the chain; or "heaps". Without names: native.c and pinned.c on both, the programs below on the
# chain, and symmetric heaps of the stand-in's GPUs with each other and with PoCL, in one worker and
# in two. Calls of cuBLAS and cuFFT reach our own libraries on the chain, as they reach NVIDIA's on
# a GPU.
# Prints one line per test with its time, and a summary.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../tools/pool.sh"
. "$here/../tally.sh"
libraries=${PENSTOCK_CUDA:-$PENSTOCK_BIN/cuda}
out=$PENSTOCK_TARGET/cuda
python=$POOL_ROOT/.venv-cuda/bin/python
mkdir -p "$out/log" "$out/tests"
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    names=(vectorAdd matrixMul copies streams atomics numba_vectors)
    [ ! -e /usr/lib/*-linux-gnu/libopenblas.so.0 ] || names+=(cublas cublas_lt)
    [ ! -e /usr/lib/*-linux-gnu/libfftw3f_threads.so.3 ] || names+=(cufft)
    ! runs all || names+=(convolutionSeparable clock spaces)
fi
heaps=$([ $# -eq 0 ] && echo yes) others=yes
if [ "${names[*]}" = heaps ]; then heaps=yes others='' names=(); fi

# lacks NEED REASON: reports a skip, or a failure if NEED is required.
lacks() {
    if is_required "$1"; then
        report FAIL "$1 is required, and is missing: $2"
    else
        report skip "SKIPPED: $2"
    fi
}

# run_on NODES COMMAND...: runs a program with our libraries on a pool, and reports its verdict.
run_on() {
    local nodes=$1 log=$out/log/native-$name.log code last
    shift
    tally_begin "cuda/$name"
    limited "$(patience 5)" env PENSTOCK_NODES="$nodes" LD_LIBRARY_PATH="$libraries" "$@" >"$log" 2>&1
    code=$?
    last=$(tail -n 1 "$log" | cut -c 1-110)
    case $code in
        0) report ok "$last" ;;
        77) report skip "SKIPPED: $last" ;;
        *)
            report FAIL "$(how_it_ended $code)"
            grep -v '^  ok ' "$log" | tail -n 15 | sed 's/^/        | /' ;;
    esac
}

[ -e "$libraries/libcuda.so.1" ] || { echo "no libcuda.so.1 in $libraries: run \`make build\` first" >&2; exit 1; }
heap_cases=(one-worker two-workers refused-HOST_REGISTER_SUPPORTED refused-integrated refused-chain)
if ! command -v "${CC:-cc}" >/dev/null; then
    tally_plan native 1
    tally_begin cuda/native
    lacks compiler "no C compiler"
    tally_end
fi
count=0
[ -z "$heaps" ] || count=$((count + ${#heap_cases[@]}))
[ -z "$others" ] || count=$((count + 11 + ${#names[@]}))
tally_plan native $count
# The stand-in for cuBLAS finds the driver by its name.
"${CC:-cc}" -O2 -fPIC -shared -DNEWER -Wl,-soname,libcuda.so.1 "-DMEMORY_BYTES=(128ull << 20)" \
    -o "$out/tests/standin.so" "$POOL_ROOT/crates/node/device/tests/cuda_standin.c" -lpthread &&
    "${CC:-cc}" -O2 -fPIC -shared -o "$out/tests/cublas_standin.so" \
        "$POOL_ROOT/crates/node/device/tests/cublas_standin.c" -ldl -lm &&
    "${CC:-cc}" -std=gnu17 -O1 -w -o "$out/tests/native" "$here/native.c" -ldl &&
    "${CC:-cc}" -std=gnu17 -O1 -w -o "$out/tests/pinned" "$here/pinned.c" -ldl -lpthread || exit 1

trap pool_stop EXIT
trap 'exit 130' INT TERM
POOL_KIND=unix
POOL_DIR=$(mktemp -d "${TMPDIR:-/tmp}/penstock-test.XXXXXX")
mkdir "$POOL_DIR/none"
# A node with only the stand-in; a node with an OpenCL device, and one whose driver is our own
# library on top of it.
none=("OCL_ICD_VENDORS=$POOL_DIR/none" "OPENCL_VENDOR_PATH=$POOL_DIR/none")
POOL_SERVE_ENV=("${none[@]}" "PENSTOCK_LIBCUDA=$out/tests/standin.so")
POOL_SERVE_ENV+=("PENSTOCK_LIBCUBLAS=$out/tests/cublas_standin.so")
pool_serve --listen "unix:$POOL_DIR/standin.sock" || exit 1
standin=$POOL_ADDRESS
POOL_SERVE_ENV=("POCL_DEVICES=pthread")
pool_serve --listen "unix:$POOL_DIR/second.sock" || exit 1
POOL_SERVE_ENV=("${none[@]}" "PENSTOCK_LIBCUDA=$libraries/libcuda.so.1"
    "PENSTOCK_LIBCUBLAS=$libraries/libcublas.so.13" "PENSTOCK_LIBCUFFT=$libraries/libcufft.so.12"
    "PENSTOCK_LIBCUDA_NODES=$POOL_ADDRESS")
pool_serve --listen "unix:$POOL_DIR/first.sock" || exit 1
chain=$POOL_ADDRESS

# Heaps on a node whose worker has the stand-in and PoCL; on a PoCL node and one with only the
# stand-in; with drivers that cannot register memory; and on the chain, whose devices belong to
# another daemon.
heap_tests() {
    local toolkit ptx=$out/tests/heap_kernels.ptx program=$out/tests/native_heaps both refused why
    toolkit=$(echo "$POOL_ROOT"/.venv-cuda/lib/python3*/site-packages/nvidia/cu13)
    if [ ! -x "$toolkit/bin/nvcc" ]; then
        for why in "${heap_cases[@]}"; do
            tally_begin "cuda/heaps-$why"
            lacks cuda-toolkit "no .venv-cuda with nvcc: run \`tools/setup.sh cuda\`"
        done
        return
    fi
    tally_begin cuda/heaps
    "$toolkit/bin/nvcc" -ptx -std=c++17 -arch=compute_75 "-I$POOL_ROOT/crates/pool/ggas/include" -o "$ptx" "$here/heap_kernels.cu" &&
        "${CC:-cc}" -std=gnu17 -O1 -Wall -Wextra "-I$toolkit/include" "-I$POOL_ROOT/include" -o "$program" "$here/native_heaps.c" \
            "-L$libraries" -l:libcuda.so.1 -ldl || { report FAIL "they do not build"; return; }
    POOL_SERVE_ENV=("POCL_DEVICES=pthread" "PENSTOCK_LIBCUDA=$out/tests/standin.so")
    pool_serve --listen "unix:$POOL_DIR/both.sock" || exit 1
    both=$POOL_ADDRESS
    name=heaps-one-worker
    run_on "$both" "$program" "$ptx" Stand-in
    POOL_SERVE_ENV=("POCL_DEVICES=pthread")
    pool_serve --listen "unix:$POOL_DIR/victim.sock" || exit 1
    name=heaps-two-workers
    run_on "$standin,$POOL_ADDRESS" env "PENSTOCK_TEST_VICTIM=${POOL_PIDS[-1]}" "$program" "$ptx" Stand-in
    for why in NO_REGISTER INTEGRATED; do
        POOL_SERVE_ENV=("${none[@]}" "PENSTOCK_LIBCUDA=$out/tests/standin.so" "CUDA_STANDIN_$why=1")
        pool_serve --listen "unix:$POOL_DIR/$why.sock" || exit 1
        refused=HOST_REGISTER_SUPPORTED
        [ "$why" = INTEGRATED ] && refused=integrated
        name=heaps-refused-$refused
        run_on "$POOL_ADDRESS" "$program" "$ptx" Stand-in "$refused"
    done
    # Penstock's own driver maps the memory that it allocates, and none that is registered.
    name=heaps-refused-chain
    run_on "$chain" "$program" "$ptx" "" "does not take a view"
}

[ -n "$heaps" ] && heap_tests
if [ -z "$others" ]; then
    tally_end
fi
name=native-standin
run_on "$standin" "$out/tests/native" Stand-in
# Products in a library that is stricter than cuBLAS.
name=cublas_lt-standin
if [ -x "$python" ]; then
    run_on "$standin" "$python" "$here/cublas_lt.py"
else
    tally_begin "cuda/$name"
    lacks cuda-toolkit "no .venv-cuda: run \`tools/setup.sh cuda\`"
fi
# The test program occupies the addresses at which the device's memory first appears.
name=native-taken
POOL_SERVE_ENV=("${none[@]}" "PENSTOCK_LIBCUDA=$out/tests/standin.so" CUDA_STANDIN_AT=200000000000)
pool_serve --listen "unix:$POOL_DIR/taken.sock" || exit 1
run_on "$POOL_ADDRESS" env PENSTOCK_TEST_TAKEN=200000000000 "$out/tests/native" Stand-in
name=native-chain
run_on "$chain" "$out/tests/native"
# Pinned memory: what the GPU copies by itself, with few registrations, and no byte through memory
# that it does not see; a driver that registers one piece, or none; one that maps nothing for
# kernels; a client that shares no memory with the node; and the chain.
pinned_on() {
    local kind=$2
    name=pinned-$1
    shift 2
    POOL_SERVE_ENV=("${none[@]}" "PENSTOCK_LIBCUDA=$out/tests/standin.so" "$@")
    pool_serve --listen "unix:$POOL_DIR/$name.sock" || exit 1
    run_on "$POOL_ADDRESS" "$out/tests/pinned" "$kind"
}
pinned_on standin shared CUDA_STANDIN_ONLY_IN_PLACE=1 CUDA_STANDIN_PINS=8
pinned_on one-piece both CUDA_STANDIN_PINS=1
pinned_on refused pages CUDA_STANDIN_PINS=0
pinned_on integrated shared CUDA_STANDIN_INTEGRATED=1
name=pinned-tcp
POOL_SERVE_ENV=("${none[@]}" "PENSTOCK_LIBCUDA=$out/tests/standin.so" "PENSTOCK_KEY=$POOL_DIR/key")
PENSTOCK_KEY=$POOL_DIR/key "$PENSTOCK_BIN/penstock" key --create >/dev/null || exit 1
pool_serve --listen tcp:127.0.0.1:0 || exit 1
run_on "$POOL_ADDRESS" env PENSTOCK_KEY="$POOL_DIR/key" "$out/tests/pinned" pages
name=pinned-chain
run_on "$chain" "$out/tests/pinned" shared
# A daemon that finds our own library first, as under `penstock run`, must not take it for a driver.
name=own-library-is-no-driver
POOL_SERVE_ENV=("${none[@]}" "LD_LIBRARY_PATH=$libraries")
pool_serve --listen "unix:$POOL_DIR/own.sock" || exit 1
tally_begin "cuda/$name"
listed=$(limited "$(patience)" env PENSTOCK_NODES="$POOL_ADDRESS" "$PENSTOCK_BIN/penstock" devices 2>&1)
code=$?
case $code:$listed in
    124:* | 137:*) report FAIL "$(how_it_ended $code)" ;;
    *"NVIDIA CUDA driver"*) report FAIL "it is: $listed" ;;
    *) report ok "$(tail -n 1 <<<"$listed" | cut -c 1-110)" ;;
esac
for program in "${names[@]}"; do
    name=$program-chain
    if [ -x "$out/tests/$program" ]; then
        run_on "$chain" "$out/tests/$program"
    elif [ -x "$out/examples/$program" ]; then
        run_on "$chain" "$out/examples/$program" --small
    elif [ -e "$here/$program.py" ] && [ -x "$python" ]; then
        run_on "$chain" "$python" "$here/$program.py"
    else
        tally_begin "cuda/$name"
        lacks cuda-toolkit "not built; tests/cuda/run.sh builds it, where .venv-cuda has nvcc"
    fi
done
tally_end

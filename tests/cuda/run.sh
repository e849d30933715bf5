#!/bin/bash
# Builds and runs CUDA programs on a pool without an NVIDIA device, through `penstock run`.
#
#   tests/cuda/run.sh [--on unix|tcp|two|far] [--device pocl|intel] [NAME...]
#
# Programs: examples/cuda with the shared (NAME) and the static runtime (NAME-static); *.py, *.cu
# and *.c beside this file. Prints one line per program with its time, logs of failures, and a
# summary. Logs stay in target/cuda/log.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../tools/pool.sh"
. "$here/../tally.sh"
on=unix
device=pocl
names=()
while [ $# -gt 0 ]; do
    case $1 in
        --on) on=$2; shift ;;
        --device) device=$2; shift ;;
        -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
        -*) echo "no such option: $1" >&2; exit 2 ;;
        *) names+=("$(basename "$1")") ;;
    esac
    shift
done
env_folder=$POOL_ROOT/.venv-cuda
python=$env_folder/bin/python
libraries=$PENSTOCK_BIN/cuda
out=$PENSTOCK_TARGET/cuda
mkdir -p "$out/log"

# In the lane `test` each behaviour once; in `all` also each program as its users build it.
examples=(vectorAdd asyncAPI bicubicTexture matrixMul)
static=(vectorAdd-static matrixMul-static)
scripts=(numba_vectors nvrtc_saxpy nvml cublas cublas_lt cufft cupy_arrays cupy_libraries)
tests=(driver memory_calls memory_calls_per_thread stream_calls stream_calls_per_thread
    graph_calls object_calls older_calls runtime_calls nvml_structs images_size errors information
    devices copies streams graphs graph_nodes spaces atomics surfaces warps branches cub steps
    printing allocating memcheck managed managed_variables separate separate_static)
if runs all; then
    examples+=(alignedTypes BlackScholes boxFilter clock convolutionSeparable fastWalshTransform
        imageDenoising)
    static=("${examples[@]/%/-static}")
    scripts+=(numba_matrices numba_histogram cupy_sorts)
    tests+=(thrust runtime_calls_per_thread streams_per_thread images_speed images_none images_two
        images_machine)
fi
# Needs two separate devices.
case $on in two | far) tests+=(heaps) ;; esac
if [ ${#names[@]} -eq 0 ]; then
    names=("${examples[@]}" "${static[@]}" "${scripts[@]}" "${tests[@]}")
fi

tally_plan cuda ${#names[@]}
# skip_all NEED REASON: skips everything, or fails if NEED is required.
skip_all() {
    local program
    for program in "${names[@]}"; do
        tally_begin "cuda/$program $on"
        if is_required "$1"; then
            report FAIL "$1 is required, and is missing: $2"
        else
            report skip "SKIPPED: $2"
        fi
    done
    tally_end
}
[ -x "$env_folder/bin/python" ] || skip_all cuda-toolkit "no .venv-cuda with nvcc: tools/setup.sh cuda"
[ -e "$libraries/libcuda.so.1" ] || { echo "no libcuda.so.1 in $libraries: run \`make build\` first" >&2; exit 1; }

# Builds what these programs need and what has changed. A compiler takes seconds for each. Another
# run may want the same programs.
exec {building}>"$out/lock"
flock "$building"
for folder in examples tests; do
    source=$here targets=()
    [ $folder = tests ] || source=$POOL_ROOT/examples/cuda
    for program in "${names[@]}"; do
        if [ -e "$POOL_ROOT/examples/cuda/${program%-static}.cu" ]; then
            [ $folder = tests ] || targets+=("$out/examples/$program")
        elif [ $folder = tests ] && [ "$program" = separate_static ]; then
            targets+=("$out/tests/$program")
        elif [ $folder = tests ] && { [ ! -e "$here/$program.py" ] || [ -e "$here/$program.cu" ]; }; then
            targets+=("$out/tests/$program")
        fi
    done
    [ ${#targets[@]} -gt 0 ] || continue
    if ! make -C "$source" -j"$(nproc)" --no-print-directory OUT="$out/$folder" \
        LIBCUDA="$libraries" "${targets[@]}" >"$out/log/build-$folder.log" 2>&1; then
        tally_begin "cuda/build $folder"
        report FAIL "$source does not build"
        tail -n 30 "$out/log/build-$folder.log" | sed 's/^/        | /'
        exit 1
    fi
done
exec {building}>&-

# The devices of the nodes: PoCL, or Intel's runtime for CPUs.
case $device in
    pocl) export POCL_DEVICES=pthread ;;
    intel)
        [ -e "$env_folder/vendors/intel.icd" ] || skip_all intel "no Intel runtime: tools/setup.sh cuda"
        export OCL_ICD_VENDORS=$env_folder/vendors OPENCL_VENDOR_PATH=$env_folder/vendors ;;
    *) echo "no such device: $device (pocl or intel)" >&2; exit 2 ;;
esac
trap pool_stop EXIT
trap 'exit 130' INT TERM
pool_start "$on" || exit 1

# Example programs and Python programs run as a user starts them; tests only get the libraries'
# folder.
as_user() { pool_run "$1" "$PENSTOCK_BIN/penstock" run --no-local -- "${@:2}"; }
with_path() { pool_run "$1" env LD_LIBRARY_PATH="$libraries" "${@:2}"; }

limit=$(patience 5)
# Sets `command` to the command of a program.
command_of() {
    case $program in
        numba_* | nvrtc_* | nvml | cublas | cublas_lt | cufft | cupy_*)
            command=(as_user "$limit" "$python" "$here/$program.py") ;;
        sharing) command=(with_path "$limit" "$python" "$here/sharing.py" "$out/tests/sharing") ;;
        # Its last case kills the daemon of the second node.
        heaps) command=(with_path "$limit" env ${POOL_PIDS[1]:+PENSTOCK_TEST_VICTIM=${POOL_PIDS[1]}} "$out/tests/heaps") ;;
        # It has the static runtime, which only penstock run replaces.
        separate_static) command=(as_user "$limit" "$out/tests/$program") ;;
        memcheck) command=(with_path "$limit" env PENSTOCK_CHECK=1 "$out/tests/memcheck") ;;
        *)
            if [ -x "$out/tests/$program" ]; then
                command=(with_path "$limit" "$out/tests/$program")
            elif [ -x "$out/examples/$program" ]; then
                command=(as_user "$limit" "$out/examples/$program" --small)
            else
                echo "no such program: $program" >&2
                exit 2
            fi ;;
    esac
}

# on_cores LIST: from now on, this script and what it starts use only these cores.
on_cores() { taskset --cpu-list --pid "$1" $BASHPID >/dev/null || exit 1; }
cores=$(taskset --cpu-list --pid $BASHPID | sed 's/.*: //')

for program in "${names[@]}"; do
    # On one core, the kernel gives all threads equal shares, whatever else runs there. On several
    # cores, the shares depend on which threads happen to be on a core with others.
    if [ "$program" = sharing ]; then
        pool_stop
        on_cores "${cores%%[-,]*}"
        pool_start "$on" || exit 1
    fi
    command_of
    log=$out/log/$program-$on-$device.log
    tally_begin "cuda/$program $on $device"
    "${command[@]}" >"$log" 2>&1
    code=$?
    # Without the shell's message about a daemon that a test has killed.
    last=$(grep -v '^[^ ]*pool\.sh: line [0-9]*: .*Killed' "$log" | tail -n 1 | cut -c 1-110)
    # A test with several cases ends with their counts, and the tally counts each case.
    counts=$(sed -n 's/^[a-z_]*: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$log" | tail -n 1)
    case $code in
        0)
            if [ -n "$counts" ]; then
                report ok "${last#*: }" $counts
            elif [ "$last" = "Test passed" ]; then
                report ok "$(tail -n 2 "$log" | head -n 1 | cut -c 1-110)"
            else
                report FAIL "ended with code 0, but does not say that it passed"
            fi ;;
        77)
            if is_required cuda-toolkit; then
                report FAIL "its needs are required, and it was skipped: $last"
            else
                report skip "SKIPPED: $last"
            fi ;;
        1) report FAIL "ended with code 1" ${counts:-} ;;
        *) report FAIL "$(how_it_ended $code)" ;;
    esac
    case $code in
        0 | 77) grep '^  skip' "$log" | sed 's/^/        | /' ;;
        *) grep -v '^  ok ' "$log" | tail -n 25 | sed 's/^/        | /' ;;
    esac
    [ "$program" = sharing ] && on_cores "$cores"
    if [ "$program" = sharing ] || { [ "$program" = heaps ] && [ ${#POOL_PIDS[@]} -gt 1 ]; }; then
        pool_stop
        pool_start "$on" || exit 1
    fi
done
tally_end

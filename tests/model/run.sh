#!/bin/bash
# Runs random OpenCL or CUDA programs on a pool.
#
#   tests/model/run.sh [--on local|unix|tcp|two|far|apart|mixed|platforms] [--cuda | --kernels]
#                      [OPTION...]
#
# Without --seconds and --programs, runs for a minute. Other options are those of `penstock-check`.
# With --cuda or --kernels, uses Penstock's libcuda.so.1, or on `local` that of this host. Findings
# are in target/model/KIND, target/model/cuda-KIND or target/model/kernels-KIND. MODEL_DEVICES names
# PoCL's devices on each node (POCL_DEVICES). MODEL_INTEL=1 selects Intel's runtime for CPUs instead
# of PoCL on `local`, or with --cuda and --kernels on each node. Test builds (feature `test-delays`)
# read the seed of their delays from PENSTOCK_TEST_DELAYS.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../tools/pool.sh"
on=local
interface=opencl
options=()
while [ $# -gt 0 ]; do
    case $1 in
        --on) on=$2; shift ;;
        --cuda | --kernels) interface=${1#--} ;;
        -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) options+=("$1") ;;
    esac
    shift
done
checker=${MODEL_CHECK:-$PENSTOCK_BIN/penstock-check}
export POCL_DEVICES=${MODEL_DEVICES:-pthread}
export PENSTOCK_TEST_DELAYS=${PENSTOCK_TEST_DELAYS:-1}
trap pool_stop EXIT
trap 'exit 130' INT TERM
if [ "$interface" != opencl ]; then
    out=$PENSTOCK_TARGET/model/$interface-$on
    mkdir -p "$out"
    libraries=$PENSTOCK_BIN/cuda
    if [ "$on" = local ]; then
        libraries=
    elif [ ! -e "$libraries/libcuda.so.1" ]; then
        echo "no libcuda.so.1 in $libraries: run \`make cuda\` first" >&2
        exit 1
    fi
    if [ "${MODEL_INTEL:-}" = 1 ]; then
        export OCL_ICD_VENDORS=$POOL_ROOT/.venv-cuda/vendors OPENCL_VENDOR_PATH=$POOL_ROOT/.venv-cuda/vendors
    fi
    pool_start "$on" || exit $?
    env "${POOL_ENV[@]}" ${libraries:+LD_LIBRARY_PATH="$libraries"} "$checker" "--$interface" --out "$out" "${options[@]}"
    exit
fi
out=$PENSTOCK_TARGET/model/$on
mkdir -p "$out"
# Features that PoCL 3.1 does not support, on a node or locally: docs/notes/checker.md.
without=user-events-out-of-order,failing-callbacks,failing-blocking,images,image-view-fills,rect-copies
platform=Penstock
case $on in
    local) platform=Portable; without=$without,failing-launches ;;
    # Two platforms of one node share a worker, which cannot have two copies of an allocation at one
    # address.
    mixed) without=$without,svm ;;
    *) ;;
esac
if [ "$on" = local ] && [ "${MODEL_INTEL:-}" = 1 ]; then
    export OCL_ICD_VENDORS=$POOL_ROOT/.venv-cuda/vendors OPENCL_VENDOR_PATH=$POOL_ROOT/.venv-cuda/vendors
    platform=Intel without=writes-end,failing-blocking,failing-events,failing-callbacks
fi
# MODEL_WITH names features that are left out by default.
for feature in ${MODEL_WITH:-}; do
    without=$(printf %s ",$without," | sed "s/,$feature,/,/;s/^,//;s/,\$//")
done
pool_start "$on" || exit $?
[ -n "$without" ] && options=(--without "$without" "${options[@]}")
env "${POOL_ENV[@]}" "$checker" --platform "$platform" --out "$out" "${options[@]}"

#!/bin/bash
# OpenMM's CUDA platform, from PyPI, on an OpenCL device of the host. Compares the forces of 8,000
# atoms with those of the Reference platform.
#
#   tests/cuda/openmm.sh [--device pocl|intel] [ATOMS]
#
# Installs OpenMM into .venv-openmm if it is not there (tools/setup.sh openmm). The first run takes
# minutes, because the compiler of the device builds all kernels. PENSTOCK_BIN is the folder with
# penstock and its folder cuda (default: target/release).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../tools/pool.sh"
if [ "${1:-}" = --device ]; then
    case ${2:-} in
        pocl) ;;
        intel)
            vendors=$POOL_ROOT/.venv-cuda/vendors
            [ -e "$vendors/intel.icd" ] || { echo "no Intel runtime: run \`tools/setup.sh cuda\` first" >&2; exit 1; }
            export OCL_ICD_VENDORS=$vendors OPENCL_VENDOR_PATH=$vendors ;;
        *) echo "no such device: ${2:-} (pocl or intel)" >&2; exit 2 ;;
    esac
    shift 2
fi
libraries=$PENSTOCK_BIN/cuda
[ -e "$libraries/libcuda.so.1" ] || { echo "no libcuda.so.1 in $libraries: run \`make build\` first" >&2; exit 1; }
"$POOL_ROOT/tools/setup.sh" openmm
"$PENSTOCK_BIN/penstock" run -- "$POOL_ROOT/.venv-openmm/bin/python" "$here/openmm_forces.py" "$@"

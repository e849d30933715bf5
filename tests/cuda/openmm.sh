#!/bin/bash
# OpenMM's CUDA platform, from PyPI, on an OpenCL device of the host. Compares the forces of 8,000
# atoms with those of the Reference platform.
#
#   tests/cuda/openmm.sh [--device pocl|intel] [ATOMS]
#
# Installs OpenMM into target/openmm if it is not there (some 600 MB). Mapped host memory is not
# supported yet; a preloaded library (mapped.c) replaces it. PENSTOCK_BIN is the folder with
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
folder=$PENSTOCK_TARGET/openmm
[ -e "$libraries/libcuda.so.1" ] || { echo "no libcuda.so.1 in $libraries: run \`make build\` first" >&2; exit 1; }
if [ ! -x "$folder/bin/python" ] || ! "$folder/bin/python" -c 'import openmm' 2>/dev/null; then
    python3 -m venv "$folder"
    "$folder/bin/pip" install --quiet 'openmm[cuda13]==8.6.1'
fi
headers=$(echo "$folder"/lib/python3*/site-packages/nvidia/cu13/include)
cc -shared -fPIC -O1 -Wall -Wextra -I"$headers" -o "$folder/libmapped.so" "$here/mapped.c" -L"$libraries" -l:libcuda.so.1
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
"$PENSTOCK_BIN/penstock" run -- env LD_PRELOAD="$folder/libmapped.so" "$folder/bin/python" "$here/openmm_forces.py" "$@"

#!/bin/bash
# Builds the six applications, or one program of your own, for the simulator.
#
#   tools/sim/build.sh DIRECTORY [NAME SOURCE.c...]
#
# Without NAME, builds all applications in examples/libwater as DIRECTORY/APP, with
# DIRECTORY/APP.cl. With NAME, builds that program from these sources. Each program gets its own
# copy of the runtime, because the simulator separates ranks only within the executable. WTR_STATIC
# names libwater.a (default: in PENSTOCK_BIN, or of the release build).
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
top=$here/../..
into=$1
shift
static=${WTR_STATIC:-${PENSTOCK_BIN:-${CARGO_TARGET_DIR:-$top/target}/release}/libwater.a}
command -v smpicc >/dev/null || { echo "smpicc is missing: install the Debian package libsimgrid-dev" >&2; exit 1; }
[ -f "$static" ] || { echo "$static is missing: cargo build --release -p penstock-water" >&2; exit 1; }
water=$top/crates/faces/water
mkdir -p "$into"
# The linker that comes with Rust takes 0.6 s of CPU time for a program, and GNU's takes 2.5 s.
linker=()
for folder in "$(rustc --print sysroot 2>/dev/null)"/lib/rustlib/*/bin/gcc-ld; do
    [ ! -x "$folder/ld.lld" ] || linker=("-B$folder" -fuse-ld=lld)
done

# build NAME SOURCE...
build() {
    local name=$1
    shift
    # The simulator folds the memory that the program allocates, but not that of the shims, which is
    # small and used. Symbols are stripped, because each rank has a copy of the file.
    smpicc -std=gnu11 -O2 -fPIC -I"$water/include" -I"$water/shim" -DSMPI_NO_OVERRIDE_MALLOC -DWTR_SIMULATED \
        -c "$water/shim/wtr_mpi.c" -o "$into/$name.mpi.o"
    smpicc -std=gnu11 -O2 -fPIC -I"$water/include" -I"$water/shim" -c "$water/shim/wtr_smpi.c" -o "$into/$name.smpi.o"
    smpicc -std=gnu11 -O2 -fPIC -I"$water/include" -Dmain=wtr_program_main "$@" "$into/$name.smpi.o" "$into/$name.mpi.o" "$static" \
        -lpthread -ldl -lm "${linker[@]}" -Wl,--gc-sections -s -o "$into/$name"
    rm -f "$into/$name.smpi.o" "$into/$name.mpi.o"
}

if [ $# -gt 0 ]; then
    build "$@"
    exit
fi
examples=$top/examples/libwater
for source in "$examples"/*/water.c; do
    directory=$(dirname "$source")
    name=$(basename "$directory")
    [ -f "$directory/$name.c" ] || continue
    build "$name" -I"$examples/common" "$examples"/common/*.c "$top/examples/common/helpers.c" "$directory/$name.c" "$source"
    [ ! -f "$directory/kernel.cl" ] || cp "$directory/kernel.cl" "$into/$name.cl"
done

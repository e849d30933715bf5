#!/usr/bin/env bash
# Runs Listing 1 and the six applications with --verify on ranks of a real MPI, at small sizes. For
# the first half of them, rank 0 runs the program and the others run wtrd; for the rest, all ranks
# run the program.
#
#   ranks.sh [--mpi openmpi|mpich] [--ranks N[,N...]] [--dcr off|paper|auto]
#
# Default: all installed MPIs, 2 and 4 ranks, auto. PENSTOCK_BIN is the folder of libwater.so, wtrd
# and the shims (default: target/release). PROGRAM_S is the time limit of one program.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../tools/pool.sh"
. "$here/../tally.sh"
: "${PROGRAM_S:=$(patience 5)}"

mpis=openmpi,mpich ranks=2,4 dcr=auto
while [ $# -gt 0 ]; do
    case $1 in
        --mpi) mpis=${2:?--mpi wants openmpi or mpich}; shift 2 ;;
        --ranks) ranks=${2:?--ranks wants numbers}; shift 2 ;;
        --dcr) dcr=${2:?--dcr wants off, paper or auto}; shift 2 ;;
        *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; [ "$1" = --help ] && exit 0 || exit 2 ;;
    esac
done
[ -e "$PENSTOCK_BIN/libwater.so" ] || { echo "no libwater.so in $PENSTOCK_BIN: run \`make build\` first" >&2; exit 1; }

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export LD_LIBRARY_PATH=$PENSTOCK_BIN${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# By default, both launchers refuse root and more ranks than cores.
# Ranks that wait leave the processor to the workers, of which the library does not know.
export OMPI_MCA_mpi_yield_when_idle=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 WTR_DCR=$dcr POCL_DEVICES=pthread
"${CC:-cc}" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -g -I"$here/../../crates/faces/water/include" -o "$out/listing1" "$here/listing1.c" \
    -L"$PENSTOCK_BIN" -lwater || exit 1
cp "$here/kernel.cl" "$out"
make -s -C "$here/../../examples/libwater" water OUT="$out" LIBWATER="$PENSTOCK_BIN" || exit 1
cd "$out" || exit 1

# launch MPI RANKS WAY PROGRAM...: runs a program on ranks.
launch() {
    local mpi=$1 count=$2 way=$3 launcher
    shift 3
    case $mpi in
        openmpi) launcher=(mpirun.openmpi --oversubscribe --bind-to none) ;;
        mpich) launcher=(mpiexec.mpich) ;;
    esac
    if [ "$way" = wtrd ]; then
        limited "$PROGRAM_S" "${launcher[@]}" -n 1 "$@" : -n $((count - 1)) "$PENSTOCK_BIN/wtrd" </dev/null
    else
        limited "$PROGRAM_S" "${launcher[@]}" -n "$count" "$@" </dev/null
    fi
}

check() {
    local name text code said='"verified": true'
    tally_begin "water/$1 $2-$3"
    # An application must report that its result is right.
    [ "$1" != listing1 ] || said=
    shift
    text=$(launch "$@" 2>&1)
    code=$?
    if [ $code -ne 0 ]; then
        report FAIL "$(how_it_ended $code)"
    elif [[ $text != *$said* ]]; then
        report FAIL "it does not say that its result is right"
    else
        report ok ""
        return
    fi
    tail -n 30 <<<"$text" | sed 's/^/        | /'
}

is_here() { command -v "mpicc.$1" >/dev/null && [ -e "$PENSTOCK_BIN/libwtr_mpi_$1.so" ]; }
number=0
for mpi in ${mpis//,/ }; do
    if is_here "$mpi"; then
        for count in ${ranks//,/ }; do number=$((number + 7)); done
    else
        number=$((number + 1))
    fi
done
tally_plan ranks $number
for mpi in ${mpis//,/ }; do
    if ! is_here "$mpi"; then
        tally_begin "water/ranks $mpi"
        lack="mpicc.$mpi or libwtr_mpi_$mpi.so is not here (tools/setup.sh test; make shims)"
        if is_required mpi; then report FAIL "$lack"; else report skip "SKIPPED: $lack"; fi
        continue
    fi
    for count in ${ranks//,/ }; do
        check listing1 "$mpi" "$count" all ./listing1
        check perlin_noise "$mpi" "$count" wtrd ./perlin_noise-water --size 200 --verify --json
        check nbody "$mpi" "$count" wtrd ./nbody-water --size 500 --steps 3 --verify --json
        check knn "$mpi" "$count" wtrd ./knn-water --size 2000 --queries 100 --verify --json
        check floyd "$mpi" "$count" all ./floyd-water --size 64 --block 8 --verify --json
        check matrix_mul "$mpi" "$count" all ./matrix_mul-water --size 100 --verify --json
        check lin_reg "$mpi" "$count" all ./lin_reg-water --size 500 --points 1000 --verify --json
    done
done
tally_end

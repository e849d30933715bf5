#!/usr/bin/env bash
# Measures the exchange of device memory between two ranks, beside that of a program that copies,
# sends and copies. Prints medians for each size, pool, MPI and number of threads that call MPI.
#
#   measure.sh [--mpi openmpi|mpich[,...]] [--on unix|far|two|tcp[,...]] [--least KIB]
#
# Default: both MPIs, one node on a Unix socket and two nodes over TCP, sizes from 1 KiB. On a host
# with other work, `chrt -r 1 tests/mpi/measure.sh` keeps that work away.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../tools/pool.sh"

mpis=openmpi,mpich pools=unix,far least=1
while [ $# -gt 0 ]; do
    case $1 in
        --mpi) mpis=${2:?--mpi wants openmpi or mpich}; shift 2 ;;
        --on) pools=${2:?--on wants pools}; shift 2 ;;
        --least) least=${2:?--least wants a number of KiB}; shift 2 ;;
        *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; [ "$1" = --help ] && exit 0 || exit 2 ;;
    esac
done
libraries=$PENSTOCK_BIN/cuda
out=$(mktemp -d)
trap 'pool_stop; rm -rf "$out"' EXIT
trap 'exit 130' INT TERM
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 POCL_DEVICES=pthread
export CALLS_ONLY=measure

# one POOL MPI THREADS: the lines of one run.
one() {
    local launcher=(mpiexec.mpich) single=()
    [ "$2" = openmpi ] && launcher=(mpirun.openmpi --oversubscribe --bind-to none)
    [ "$3" = one ] && single=(CALLS_SINGLE=1)
    pool_run 120 "${launcher[@]}" -n 2 env "${single[@]}" "$PENSTOCK_BIN/penstock" run --no-local \
        --mpi="$2" -- "$out/calls-$2" </dev/null >"$out/text" 2>&1 || cat "$out/text" >&2
    sed -nE -e 's/^([0-9]+ KiB between two devices): /\1 by messages: /' \
        -e 's/ ms, with copies by the program / /' -e 's/ ms, ([0-9.]+) times$/ \1/' \
        -e 's/^([0-9]+) KiB.* by (.*): /\1 \2 /p' "$out/text" |
        while read -r kib call library copies ratio; do
            [ "$kib" -ge "$least" ] || continue
            printf '%-5s %-8s %-8s %-14s %6s %9s %9s %7s\n' "$1" "$2" "$3" "$call" "$kib" \
                "$library" "$copies" "$ratio"
        done
}

printf '%-5s %-8s %-8s %-14s %6s %9s %9s %7s\n' pool MPI threads call KiB library copies ratio
for mpi in ${mpis//,/ }; do
    "mpicc.$mpi" -std=c11 -D_GNU_SOURCE -Wno-stringop-overflow -O1 -o "$out/calls-$mpi" \
        "$here"/*.c -L"$libraries" -l:libcuda.so.1 -lpthread || exit 1
done
for pool in ${pools//,/ }; do
    pool_start "$pool" || exit 1
    for mpi in ${mpis//,/ }; do
        one "$pool" "$mpi" several
        one "$pool" "$mpi" one
    done
    pool_stop
done

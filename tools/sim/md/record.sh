#!/bin/bash
# Records how long each step of LAMMPS takes (LJ, 32,000 atoms) on the local device and on pools of
# one node. tools/sim/md/run.py models many nodes with these records.
#
#   tools/sim/md/record.sh [RUNS] [DIRECTORY]    default: 10 runs of each, tools/sim/md/records
#
# Writes DIRECTORY/native.txt, unix.txt and tcp.txt with one time in a line, in seconds. The
# configurations take turns. Build LAMMPS first (tools/lammps.sh). PENSTOCK_BIN names the build.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../pool.sh"
runs=${1:-10}
into=$(realpath -m "${2:-$here/records}")
lammps=${LAMMPS:-$POOL_ROOT/.cache/lammps}
# Steps of a run. The first ones, until the first new lists of neighbours (every 20 steps), are left
# out: the device compiles and allocates there. The rest is a multiple of 20 steps.
steps=439
left_out=19
[ -x "$lammps/lmp" ] || { echo "LAMMPS is not built: tools/lammps.sh" >&2; exit 1; }
out=$(mktemp -d)
trap 'pool_stop; rm -rf "$out"' EXIT
trap 'exit 130' INT TERM
gcc -O2 -shared -fPIC "$here/marks.c" -o "$out/marks.so" -ldl
marks="fix marks all print 1 \"@step\"\\nrun $steps"
sed "s/^run.*/$marks/" "$lammps/bench/in.lj" >"$out/in.lj"
mkdir -p "$into"
# By default, Open MPI refuses root.
export POCL_DEVICES=pthread OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for ((run = 1; run <= runs; run++)); do
    for kind in local unix tcp; do
        pool_start "$kind"
        pool_run 300 env LD_PRELOAD="$out/marks.so" STEP_TIMES="$out/times" \
            "$lammps/lmp" -sf gpu -pk gpu 1 neigh no \
            -in "$out/in.lj" -log none >"$out/log" 2>&1 || { tail "$out/log" >&2; exit 1; }
        pool_stop
        [ "$(wc -l <"$out/times")" -eq $steps ] || { echo "$kind: not $steps steps" >&2; exit 1; }
        tail -n +$((left_out + 1)) "$out/times" >>"$out/${kind/local/native}.txt"
        echo "run $run, $kind: $(awk '{s += $1} END {printf "%.3f s", s}' "$out/times")"
    done
done
mv "$out/native.txt" "$out/unix.txt" "$out/tcp.txt" "$into"

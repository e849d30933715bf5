#!/bin/bash
# Checks that the simulated times in the repository are reproduced exactly. Needs libsimgrid-dev and
# a release build of penstock-water. Takes about two minutes on two cores, and 4 GB of memory.
# Prints SKIPPED and exits with 77 if the simulator is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v smpirun >/dev/null || ! command -v smpicc >/dev/null; then
    echo "SKIPPED: the simulator is missing; install the Debian package libsimgrid-dev" >&2
    exit 77
fi
programs=${CARGO_TARGET_DIR:-$here/../../target}/sim
"$here/build.sh" "$programs"
"$here/run.py" --programs "$programs" --jobs 2 --check "$here/results/gate.csv"
"$here/report.py" --check
# tests/patience.py says what the lanes are.
[ "${TEST_LANE:-all}" = test ] && exit 0
# The published rows on 64 nodes, without floyd, whose rows take minutes each.
"$here/run.py" --programs "$programs" --jobs 2 --check "$here/results/ib-qdr.csv" --nodes 64 --apps perlin_noise,nbody,knn,matrix_mul,lin_reg
"$here/run.py" --programs "$programs" --check "$here/results/sensitivity.csv" --apps lin_reg
# LAMMPS on up to four nodes.
"$here/md/run.py" --check "$here/results/lammps.csv" --fast

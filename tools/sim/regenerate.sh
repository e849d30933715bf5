#!/bin/bash
# Runs all simulated rows of docs/notes/scaling.md again with one build, and writes the page's
# tables and pictures. Takes about an hour of one core, and 8 GB of memory for the rows with 1,024
# nodes. Needs libsimgrid-dev and a release build of penstock-water.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$here/../../target}
"$here/build.sh" "$CARGO_TARGET_DIR/sim"
for table in ib-qdr gbe sensitivity gate large; do
    "$here/run.py" --jobs 1 --again "$here/results/$table.csv"
done
"$here/table5.py" --apps matrix_mul --output "$here/results/table5.csv"
"$here/cross_check.py" --again "$here/results/emulated.csv"
"$here/report.py"

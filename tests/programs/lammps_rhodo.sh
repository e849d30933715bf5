# LAMMPS, Rhodopsin: 32,000 atoms with long-range forces; about two minutes. Compares the total
# energy of each step.
LANE=slow
LIMIT_S=1200
lammps=$CACHE/lammps
needs() { [ -x "$lammps/lmp" ] || { echo "LAMMPS is not built: tools/lammps.sh"; return 1; }; }
run() {
    cp "$lammps/bench/data.rhodo" .
    "$lammps/lmp" -sf gpu -pk gpu 1 neigh no -in "$lammps/bench/in.rhodo" -log rhodo.log || return 1
    grep -oE 'TotEng +=? +[-0-9.]+' rhodo.log >result.txt
    sed -n 's/^Loop time of \([0-9.]*\).*/\1 s/p' rhodo.log | head -n 1 >note.txt
    [ "$(wc -l <result.txt)" -ge 2 ]
}

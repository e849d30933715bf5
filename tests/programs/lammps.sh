# LAMMPS with its GPU package on OpenCL: Lennard-Jones, 32,000 atoms, 100 steps. PoCL 3.1 itself
# cannot run the default (neighbour lists on the device: it crashes) nor two processes (`mpirun -np
# 2`: sub-buffers that are not aligned, -13).
LANE=slow
LIMIT_S=600
lammps=$CACHE/lammps
needs() { [ -x "$lammps/lmp" ] || { echo "LAMMPS is not built: tools/lammps.sh"; return 1; }; }
thermo() { awk '/^ *Step/ {on = 1; next} /^Loop time/ {on = 0} on' "$1"; }
run() {
    "$lammps/lmp" -sf gpu -pk gpu 1 neigh no -in "$lammps/bench/in.lj" -log lj.log || return 1
    thermo lj.log >result.txt
    [ "$(wc -l <result.txt)" -ge 2 ] || return 1
    sed -n 's/^Loop time of \([0-9.]*\).*/\1 s/p' lj.log | head -n 1 >note.txt
}

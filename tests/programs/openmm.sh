# OpenMM: its own installation test, the forces of a box of water, and 100 steps. On two nodes one
# simulation runs on both devices.
LANE=slow
SEVERAL=yes
LIMIT_S=600
needs() { "$PYTHON" -c 'import openmm' 2>/dev/null || { echo "OpenMM is not installed: tools/setup.sh programs"; return 1; }; }
run() {
    "$PYTHON" -m openmm.testInstallation >out.txt 2>&1 || { cat out.txt; return 1; }
    cat out.txt
    grep -q 'OpenCL.*Successfully computed\|Successfully computed forces' out.txt || return 1
    grep -q 'All differences are within tolerance' out.txt || return 1
    grep -q 'OpenCL' out.txt || return 1
    "$PYTHON" "$PROGRAM_TESTS/openmm_water.py" forces.npz "$([ "$POOL" = two ] && echo 0,1 || echo 0)" | tee note.txt
    echo done >result.txt
    [ -e forces.npz ]
}
compare() { "$PYTHON" "$PROGRAM_TESTS/compare_arrays.py" --relative-rms 1e-5 "$1/forces.npz" "$2/forces.npz"; }

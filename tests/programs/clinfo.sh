# clinfo asks everything there is to ask. Every query that is answered locally is answered by the pool.
SEVERAL=yes
LIMIT_S=30
needs() { command -v clinfo >/dev/null || { echo "clinfo is not installed"; return 1; }; }
run() {
    clinfo --raw >result.txt || return 1
    clinfo >plain.txt || return 1
    clinfo -l >list.txt || return 1
    echo "$(grep -c CL_DEVICE_NAME result.txt) device(s), $(wc -l <result.txt) answers" >note.txt
}
compare() { "$PYTHON" "$PROGRAM_TESTS/compare_clinfo.py" "$1/result.txt" "$2/result.txt"; }

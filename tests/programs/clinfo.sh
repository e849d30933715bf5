# clinfo makes all queries. The pool must answer every query that the local platform answers.
SEVERAL=yes
needs() { command -v clinfo >/dev/null || { echo "clinfo is not installed"; return 1; }; }
run() {
    clinfo --raw >result.txt || return 1
    clinfo >plain.txt || return 1
    clinfo -l >list.txt || return 1
    echo "$(grep -c CL_DEVICE_NAME result.txt) device(s), $(wc -l <result.txt) answers" >note.txt
}
compare() { "$PYTHON" "$PROGRAM_TESTS/compare_clinfo.py" "$1/result.txt" "$2/result.txt"; }

# Our example, on all devices. It checks its product itself.
SEVERAL=yes
needs() { [ -x "$PENSTOCK_PROGRAMS/matmul" ] || { echo "not built: make build"; return 1; }; }
run() {
    "$PENSTOCK_PROGRAMS/matmul" --n 512 --slice 128 --timeline timeline.svg >out.txt || { cat out.txt; return 1; }
    cat out.txt
    grep -q '^product: right' out.txt || return 1
    grep '^total' out.txt >note.txt
    echo right >result.txt
}

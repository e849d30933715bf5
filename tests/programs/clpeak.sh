# clpeak: its figures are not compared, but each must be there.
LANE=slow
LIMIT_S=300
needs() { command -v clpeak >/dev/null || { echo "clpeak is not installed"; return 1; }; }
run() {
    clpeak --kernel-latency --transfer-bandwidth >out.txt 2>&1 || { cat out.txt; return 1; }
    cat out.txt
    sed -nE 's/^ +([a-zA-Z][^:]*[a-zA-Z)]) *: *[0-9.]+.*/\1/p' out.txt | grep -vE 'units|frequency' >result.txt
    sed -nE 's/.*latency *: */launch latency /p' out.txt >note.txt
    [ "$(wc -l <result.txt)" -ge 9 ]
}

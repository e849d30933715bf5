# clpeak: its figures are not compared, but each must be present for each device.
LANE=slow
SEVERAL=yes
LIMIT_S=600
needs() { command -v clpeak >/dev/null || { echo "clpeak is not installed"; return 1; }; }
run() {
    clpeak --kernel-latency --transfer-bandwidth >out.txt 2>&1 || { cat out.txt; return 1; }
    cat out.txt
    sed -nE 's/^ +([a-zA-Z][^:]*[a-zA-Z)]) *: *[0-9.]+.*/\1/p' out.txt | grep -vE 'units|frequency' >result.txt
    sed -nE 's/.*latency *: */launch latency /p' out.txt >note.txt
    [ "$(wc -l <result.txt)" -ge 9 ]
}
compare() {
    local devices=1
    case $2 in */two) devices=2 ;; esac
    diff -u <(for ((i = 0; i < devices; i++)); do cat "$1/result.txt"; done) "$2/result.txt"
}

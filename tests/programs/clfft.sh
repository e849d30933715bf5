# clFFT's own client: a batched 2D transform; it checks its result.
needs() { command -v clFFT-client >/dev/null || { echo "clfft-client is not installed"; return 1; }; }
run() {
    clFFT-client -c -x 256 -y 256 -b 4 -p 2 >out.txt 2>&1 || { cat out.txt; return 1; }
    cat out.txt
    grep -q 'Execution gflops' out.txt || return 1
    ! grep -qiE 'error|fail' <(grep -v 'timing library\|libStatTimer' out.txt) || return 1
    grep 'gflops' out.txt >note.txt
    echo "transformed" >result.txt
}

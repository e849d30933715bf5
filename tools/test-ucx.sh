#!/bin/bash
# Builds with UCX and tests heaps over it: tools/test-ucx.sh [--installed]. Prints one line per
# part; the last line counts the parts.
#
# Installs libucx0 and libucx-dev, unless --installed is given. Without UCX, reports that everything
# is skipped. Afterwards, the programs and libraries in the target folder are those with UCX, until
# the next `make build`.
set -u
cd "$(dirname "$0")/.."
PROFILE=${PROFILE:-quick}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export PROFILE PENSTOCK_BIN=$target/$PROFILE
[ "${1:-}" = --installed ] || tools/setup.sh build test ucx || exit 1
if ! ldconfig -p | grep -q 'libucp\.so\.0'; then
    echo "SKIPPED: ALL OF UCX: no libucp.so.0 on this host; install libucx0" >&2
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
[ -e /usr/include/ucp/api/ucp.h ] || echo "SKIPPED: comparing the declarations with the header: install libucx-dev" >&2

logs=$target/ucx-tests
mkdir -p "$logs"
passed=0 failed=0
part() { # part NAME COMMAND...
    local name=$1 log=$logs/$1.log
    shift
    if "$@" >"$log" 2>&1 </dev/null; then
        echo "ok   ucx/$name"
        passed=$((passed + 1))
    else
        echo "FAIL ucx/$name"
        tail -n 40 "$log"
        failed=$((failed + 1))
    fi
    # Also reports what the tests skipped.
    grep -h '^SKIPPED' "$log" | sort -u >&2 || true
}

# The nodes' logs are not kept, so this reads the path from what the user of a heap sees.
shows_ucx() {
    PENSTOCK_HEAP_TRANSPORT=ucx "$PENSTOCK_BIN/penstock" bench comm --quick --path proxy --sizes 8,1048576 --devices 2 --seconds 0.2 |
        tee /dev/stderr | grep -q 'proxy (ucx) between workers'
}
falls_back() {
    PENSTOCK_LIBUCP=/nowhere/libucp.so.0 PENSTOCK_HEAP_TRANSPORT=ucx PENSTOCK_LOG=1 \
        "$PENSTOCK_BIN/penstock" bench comm --quick --path proxy --sizes 8 --devices 2 --seconds 0.2 >"$logs/fallback.out" 2>"$logs/fallback.err"
    cat "$logs"/fallback.*
    grep -q 'proxy between workers' "$logs/fallback.out" &&
        grep -q 'a heap reaches another node over TCP.*/nowhere/libucp.so.0 can not be used' "$logs/fallback.err"
}
refuses_others() {
    ! PENSTOCK_HEAP_TRANSPORT=rdma "$PENSTOCK_BIN/penstock" serve --listen "unix:$logs/never.sock" 2>"$logs/refused.err" &&
        grep 'is no transport of heaps' "$logs/refused.err"
}

part build cargo build --profile "$PROFILE" -p penstock-cli -p penstock-daemon -p penstock-opencl --features ucx
part clippy cargo clippy --profile "$PROFILE" -p penstock-ggas -p penstock-daemon -p penstock-cli --features ucx --all-targets -- -D warnings
part ggas cargo test --profile "$PROFILE" -p penstock-ggas --features ucx
part daemon cargo test --profile "$PROFILE" -p penstock-daemon --features ucx
part heaps env PENSTOCK_HEAP_TRANSPORT=ucx tests/c/run.sh --on far multi_heaps
part kill env PENSTOCK_HEAP_TRANSPORT=ucx tests/faults/run.py --times 10 "member of a heap"
part path shows_ucx
part absent falls_back
part name refuses_others
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]

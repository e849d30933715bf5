#!/bin/bash
# All tests of the project, one line each with its time; the last line counts the cases.
#
#   tools/test.sh [--only setup,build,cargo,lint,c,model,water,cuda,programs,bench,notices,load,faults,hostile] [--lane fast|slow]
#
# `make test` runs it without arguments. On a failure the log of what failed is printed.
set -u
cd "$(dirname "$0")/.." || exit 1
# What is tested is built without link-time optimisation. PENSTOCK_BIN names another build.
PROFILE=quick
export PROFILE PENSTOCK_BIN=${PENSTOCK_BIN:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/$PROFILE}
. tools/pool.sh
stages=setup,build,cargo,c,model,water,cuda,programs,bench,notices,load,faults,hostile
lane=fast
while [ $# -gt 0 ]; do
    case $1 in
        --only) stages=$2; shift ;;
        --lane) lane=$2; shift ;;
        *) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
logs=$PENSTOCK_TARGET/test-logs
rm -rf "$logs"
mkdir -p "$logs"
export TEST_TALLY=$logs/tally TEST_RUN=$$ CARGO_TARGET_DIR=$PENSTOCK_TARGET
: >"$TEST_TALLY"
began=$(date +%s)

wanted() { case ,$stages, in *,$1,*) true ;; *) false ;; esac; }
line() { printf '%-4s %-20s %-5s %8s  %s\n' "$@"; }
since() { echo "$(date +%s.%N) $1" | awk '{printf "%.1f s", $1 - $2}'; }
summary() {
    echo "took $(($(date +%s) - began)) s; logs in $logs"
    awk '{p += $1; f += $2; s += $3} END {printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0}' "$TEST_TALLY"
    exit $?
}

# One command, one line, one case: step NAME COMMAND...
step() {
    local name=$1 started code
    shift
    started=$(date +%s.%N)
    "$@" >"$logs/${name//\//-}.log" 2>&1
    code=$?
    if [ $code -eq 0 ]; then
        line ok "$name" "" "$(since "$started")" "$(tail -n 1 "$logs/${name//\//-}.log" | cut -c 1-100)"
        [ -n "${STEP_COUNTS-yes}" ] && echo "1 0 0" >>"$TEST_TALLY"
    elif [ $code -eq 77 ]; then
        line skip "$name" "" "$(since "$started")" "SKIPPED: $(tail -n 1 "$logs/${name//\//-}.log" | cut -c 1-100)"
        echo "0 0 1" >>"$TEST_TALLY"
        return 0
    else
        line FAIL "$name" "" "$(since "$started")" "ended with code $code"
        tail -n 60 "$logs/${name//\//-}.log" | sed 's/^/        | /'
        echo "0 1 0" >>"$TEST_TALLY"
    fi
    return $code
}

if wanted setup; then STEP_COUNTS= step setup tools/setup.sh build test || summary; fi
[ -e "${CARGO_HOME:-$HOME/.cargo}/env" ] && . "${CARGO_HOME:-$HOME/.cargo}/env"
if wanted build; then STEP_COUNTS= step build make --no-print-directory rust cuda programs shims || summary; fi

if wanted cargo; then tools/cargo-tests.py "$logs" "$TEST_TALLY"; fi
if wanted lint; then
    step lint/fmt cargo fmt --all --check
    step lint/clippy cargo clippy --quiet --workspace --all-targets -- -D warnings
fi

# The runners of the C tests and of the real programs print their own lines; their summaries are in the tally.
without_summary() { grep -vE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'; }
if wanted c; then
    tests/c/run.sh --on local | without_summary
    tests/c/run.sh --on unix | without_summary
    tests/c/run.sh --on tcp | without_summary
    tests/c/run.sh --on two | without_summary
    # Heaps have ways of their own: by the proxy over TCP and over a Unix socket, and between two drivers.
    tests/c/run.sh --on far multi_heaps | without_summary
    PENSTOCK_HEAP_PATH=proxy tests/c/run.sh --on two multi_heaps | without_summary
    tests/c/run.sh --on mixed multi_heaps | without_summary
    # Nodes that do not reach each other: the client relays.
    tests/c/run.sh --on apart multi_buffers multi_events multi_gates multi_host_memory multi_programs multi_views | without_summary
fi
if wanted model; then
    step model/machine "$PENSTOCK_BIN/penstock" check --machine --programs 100000
    # Random programs, the same in each run. A search from other seeds is `tests/model/run.sh --seed`.
    for pool in unix tcp two far apart mixed platforms; do
        step model/$pool tests/model/run.sh --on $pool --programs 400 --shrink-seconds 10 --findings 3
    done
    for pool in unix two; do
        step model/cuda-$pool tests/model/run.sh --on $pool --cuda --programs 400 --shrink-seconds 10 --findings 3
    done
fi
if wanted water; then
    step water/programs tests/water/programs.sh "$PENSTOCK_BIN"
    tests/water/run.sh --on two | without_summary
    tests/water/ranks.sh --mpi openmpi --ranks 2,4,8 | without_summary
    tests/water/ranks.sh --mpi mpich --ranks 2,4 | without_summary
    step water/heaps tests/water/heaps.sh
    step water/simulated tools/sim/test.sh
    step water/python env PENSTOCK_WATER_LIBRARY="$PENSTOCK_BIN/libwater.so" .venv/bin/python -m pytest -q -p no:cacheprovider python/tests
fi
if wanted cuda; then
    # Everything once on each device; over TCP and on two nodes what depends on the way there, or needs two devices.
    tests/cuda/run.sh --on tcp vectorAdd matrixMul-static bicubicTexture asyncAPI copies streams numba_vectors | without_summary
    # What was built for the first is there for the others. Shares of a device are measured with nothing beside.
    tests/cuda/run.sh --on unix --device pocl --without sharing | without_summary &
    tests/cuda/run.sh --on unix --device intel --without sharing | without_summary
    wait
    tests/cuda/run.sh --on unix --device pocl sharing | without_summary
    tests/cuda/run.sh --on unix --device intel sharing | without_summary
    tests/cuda/run.sh --on two devices vectorAdd matrixMul BlackScholes-static heaps | without_summary
    tests/cuda/run.sh --on two --device intel heaps | without_summary
    tests/cuda/run.sh --on far heaps | without_summary
    tests/cuda/native.sh | without_summary
fi
if wanted programs; then
    for pool in unix tcp two; do tests/programs/run.sh --lane "$lane" --on "$pool" | without_summary; done
fi
if wanted bench; then
    # Not for the figures, but because each measure checks its data.
    step bench/quick "$PENSTOCK_PROGRAMS/penstock-bench" --quick --output "$PENSTOCK_TARGET/bench-quick"
fi
if wanted notices; then tests/notices/run.py | without_summary; fi
if wanted load; then tests/load/run.py --programs 40 --on tcp --alone 4 | without_summary; fi
if wanted faults; then tests/faults/run.py --busy --times 5 | without_summary; fi
if wanted hostile; then
    # Attacks wait more than they work: two runs at a time, each with a daemon of its own.
    tests/hostile/run.sh --part 1/2 | without_summary &
    tests/hostile/run.sh --part 2/2 | without_summary
    wait
fi
summary

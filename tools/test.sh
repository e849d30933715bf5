#!/bin/bash
# Runs all tests, with one line and the time of each; the last line counts the cases.
#
#   tools/test.sh [--only STAGE,...] [--lane fast|slow]
#   STAGE: setup build lint fuzz cargo c model water cuda mpi programs bench notices documents load
#          faults guests hostile containers ssh; and pure, a part of cargo without device and daemon
# `make test` runs it without arguments. If a test fails, its log is printed.
#
# Several stages run at the same time, because many tests wait more than they work: TEST_LANES of
# them (one more than there are cores). The lines of a stage are printed together when it has ended.
# The last lines tell the wall time of each stage and the CPU time of its processes.
set -u
cd "$(dirname "$0")/.." || exit 1
# Without link-time optimisation. PENSTOCK_BIN names another build.
PROFILE=quick
export PROFILE PENSTOCK_BIN=${PENSTOCK_BIN:-$(realpath -m "${CARGO_TARGET_DIR:-target}")/$PROFILE}
RUSTUP_TOOLCHAIN=${RUSTUP_TOOLCHAIN:-$(tools/toolchain.sh)}
if [ -n "$RUSTUP_TOOLCHAIN" ]; then export RUSTUP_TOOLCHAIN; else unset RUSTUP_TOOLCHAIN; fi
. tools/pool.sh
# A stage that takes long comes early, so that no stage runs alone at the end.
stages=setup,build,lint,fuzz,cargo,cuda,c,model,water,mpi,programs,hostile,faults,guests,notices
stages+=,documents,load,bench,containers,ssh
lane=fast
while [ $# -gt 0 ]; do
    case $1 in
        --only) stages=$2; shift ;;
        --lane) lane=$2; shift ;;
        *) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2 ;;
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
    [ -e "$logs/times" ] && { echo; cat "$logs/times"; }
    echo "took $(($(date +%s) - began)) s; logs in $logs"
    awk '{p += $1; f += $2; s += $3} END {printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0}' "$TEST_TALLY"
    exit $?
}

# step NAME COMMAND...: runs one command as one case, with one line.
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

stage_build() {
    STEP_COUNTS='' step build make --no-print-directory rust cuda programs shims ||
        : >"$logs/build-failed"
}

# with_cargo COMMAND ARGUMENT...: runs a command of cargo that some installations lack.
with_cargo() {
    if cargo "$1" --version >/dev/null 2>&1; then cargo "$@"; return; fi
    echo "cargo has no $1: rustup component add $1"
    return 77
}
stage_lint() {
    step lint/format tools/format.sh --check
    step lint/clippy with_cargo clippy --quiet --workspace --all-targets -- -D warnings
    step lint/doc env RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps
    step lint/spelling .venv/bin/typos --config typos.toml --format brief
    step lint/policy .venv/bin/python tools/policy/check.py
    step lint/policy-rules .venv/bin/python -m pytest -q -p no:cacheprovider tools/policy
    step lint/oldest-rust tools/oldest-rust.sh
}

stage_fuzz() { runner tools/fuzz.sh --short; }

# cargo_tests OPTION...: it fails if a test does, which the tally contains, or by itself.
cargo_tests() {
    local tally=$logs/cargo-tally-$BASHPID
    : >"$tally"
    tools/cargo-tests.py "$logs" "$tally" "$@" ||
        awk '{f += $2} END {exit f == 0}' "$tally" || echo "0 1 0" >>"$tally"
    cat "$tally" >>"$TEST_TALLY"
}
stage_cargo() { cargo_tests --workspace; }
stage_pure() {
    local crate pure=()
    for crate in coherence cuda-sys dql quota trial wire; do pure+=(-p "penstock-$crate"); done
    cargo_tests "${pure[@]}"
}

# runner COMMAND...: runs a script that prints its own lines and adds its counts to the tally. A
# script that ends without a summary counts as one failure.
runner() {
    local printed=$logs/runner-$BASHPID.log summary='^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' code
    "$@" | tee "$printed" | grep --line-buffered -vE "$summary"
    code=${PIPESTATUS[0]}
    if grep -qE "$summary" "$printed"; then return; fi
    if [ "$code" -eq 77 ]; then
        line skip "${1#tests/}" "" "" "SKIPPED: ${*:2}"
        echo "0 0 1" >>"$TEST_TALLY"
    else
        line FAIL "${1#tests/}" "" "" "ended with code $code and without a summary: ${*:2}"
        echo "0 1 0" >>"$TEST_TALLY"
    fi
}
stage_c() {
    runner tests/c/run.sh --on local
    runner tests/c/run.sh --on unix
    runner tests/c/run.sh --on tcp
    runner tests/c/run.sh --on two
    # Heaps use other paths here: the proxy over TCP and over a Unix socket, and between two
    # drivers.
    runner tests/c/run.sh --on far multi_heaps
    PENSTOCK_HEAP_PATH=proxy runner tests/c/run.sh --on two multi_heaps
    # Encrypted links to and between the nodes: large and small transfers, events, heaps.
    runner tests/c/run.sh --on encrypted buffers kernels mapping rects
    runner tests/c/run.sh --on encrypted multi_buffers multi_events multi_heaps multi_programs
    runner tests/c/run.sh --on mixed multi_heaps
    runner tests/c/run.sh --on platforms includes
    # Nodes that do not reach each other: the client relays.
    runner tests/c/run.sh --on apart multi_buffers multi_events multi_gates multi_host_memory multi_programs multi_views
}
stage_model() {
    step model/machine "$PENSTOCK_BIN/penstock" check --machine --programs 100000
    # Random programs, the same in each run. `tests/model/run.sh --seed` searches from other seeds.
    for pool in unix tcp two far apart mixed platforms; do
        step model/$pool tests/model/run.sh --on $pool --programs 400 --shrink-seconds 10 --findings 3
    done
    for pool in unix two; do
        step model/cuda-$pool tests/model/run.sh --on $pool --cuda --programs 400 --shrink-seconds 10 --findings 3
    done
}
stage_water() {
    step water/programs tests/water/programs.sh "$PENSTOCK_BIN"
    runner tests/water/run.sh --on two
    runner tests/water/ranks.sh --mpi openmpi --ranks 2,4,8
    runner tests/water/ranks.sh --mpi mpich --ranks 2,4
    step water/heaps tests/water/heaps.sh
    step water/simulated tools/sim/test.sh
    step water/python env PENSTOCK_WATER_LIBRARY="$PENSTOCK_BIN/libwater.so" .venv/bin/python -m pytest -q -p no:cacheprovider python/tests
}
stage_cuda() {
    # Everything once per device. Over TCP and on two nodes only what depends on the transport or
    # needs two devices.
    runner tests/cuda/run.sh --on tcp vectorAdd matrixMul-static bicubicTexture asyncAPI copies streams numba_vectors
    # The runs share the programs that the first one built.
    runner tests/cuda/run.sh --on unix --device pocl &
    runner tests/cuda/run.sh --on unix --device intel
    wait
    runner tests/cuda/run.sh --on two devices vectorAdd matrixMul BlackScholes-static heaps
    runner tests/cuda/run.sh --on two --device intel heaps
    runner tests/cuda/run.sh --on far heaps
    runner tests/cuda/native.sh
}
# Random calls, the same in each run. `tests/mpi/run.sh --seed` searches from other seeds. Without
# options it also runs four ranks and twice as many calls: MPICH's ranks poll while they wait, so
# four of them take minutes on two cores.
stage_mpi() {
    runner tests/mpi/run.sh --ranks 2,3 --cases 120
    runner tests/mpi/run.sh --on two --ranks 2
}
stage_programs() {
    for pool in unix tcp two; do runner tests/programs/run.sh --lane "$lane" --on "$pool"; done
}
stage_bench() {
    # Not for the figures, but because each measurement checks its data.
    step bench/quick "$PENSTOCK_PROGRAMS/penstock-bench" --quick --output "$PENSTOCK_TARGET/bench-quick"
}
stage_notices() {
    runner tests/notices/run.py
    runner tests/trace/run.py
}
stage_documents() {
    runner tests/documents/run.py
    step documents/units tests/packaging/units.sh
}
stage_guests() {
    # Guests wait more than they work.
    runner tests/guests/faults.py --times 3 &
    runner tests/guests/run.py
    runner tests/guests/groups.py
    wait
}
stage_load() { runner tests/load/run.py --programs 40 --on tcp --alone 4; }
stage_faults() { runner tests/faults/run.py --times 5; }
stage_ssh() { runner tests/ssh/run.py; }
stage_containers() { runner tests/containers/run.sh; }
stage_hostile() {
    # Attacks wait more than they work, so two runs share them, each with its own daemon.
    runner tests/hostile/run.sh --part 1/2 &
    runner tests/hostile/run.sh --part 2/2
    wait
}

# Prints the stages that must end before a stage can run.
needs() {
    case $1 in
        build | lint | fuzz) ;;
        # Two commands of cargo that use one folder wait for each other.
        cargo) echo lint ;;
        pure) echo lint cargo ;;
        *) echo build ;;
    esac
}

# run_stage NAME: runs one stage, and keeps its output and its times.
run_stage() {
    local started
    set +m
    started=$(date +%s.%N)
    "stage_$1" </dev/null 2>&1
    # The second line has the CPU time of all processes that have ended: user and system.
    times >"$logs/times-$1"
    awk -v name="$1" -v wall="$(since "$started")" -F '[ms ]+' '
        NR == 2 {printf "%-10s %10s  %8.1f s of CPU time\n", name, wall, 60 * ($1 + $3) + $2 + $4}
    ' "$logs/times-$1" >>"$logs/times"
}

if wanted setup; then
    # A build of a fresh clone never reads what incremental compilation saves: 6 GB beside 3 GB of
    # results. Cargo keeps the incremental build of the inner loop (`make check`) beside this one.
    export CARGO_INCREMENTAL=${CARGO_INCREMENTAL-0}
    STEP_COUNTS='' step setup tools/setup.sh build test guest || summary
    # A test that lacks what the setup installs fails, and is not skipped.
    there=compiler,opencl,intel,cuda-toolkit,mpi,programs,bubblewrap,guest,openssl
    export PENSTOCK_TEST_REQUIRE=${PENSTOCK_TEST_REQUIRE-$there}
fi
[ -e "${CARGO_HOME:-$HOME/.cargo}/env" ] && . "${CARGO_HOME:-$HOME/.cargo}/env"

lanes=${TEST_LANES:-$(($(nproc) + 1))}
declare -A running=() ended=()
waiting=()
for name in ${stages//,/ }; do
    [ "$name" = setup ] && continue
    declare -F "stage_$name" >/dev/null || { echo "no such stage: $name" >&2; exit 2; }
    waiting+=("$name")
done
# A process group for each stage, so that all of it can be ended.
set -m
trap 'for pid in "${!running[@]}"; do kill -- "-$pid" 2>/dev/null; done; exit 130' INT TERM

# Starts the stages that can run now.
start_stages() {
    local name need left=()
    for name in "${waiting[@]}"; do
        for need in $(needs "$name"); do
            if wanted "$need" && [ -z "${ended[$need]:-}" ]; then left+=("$name"); continue 2; fi
        done
        if [ ${#running[@]} -ge "$lanes" ]; then left+=("$name"); continue; fi
        if [ ${#waiting[@]} -eq 1 ] && [ ${#running[@]} -eq 0 ]; then
            # Nothing else prints, so its lines can be printed at once.
            : >"$logs/stage-$name.live"
            run_stage "$name" &
        else
            run_stage "$name" >"$logs/stage-$name.out" &
        fi
        running[$!]=$name
    done
    waiting=("${left[@]}")
}
start_stages
while [ ${#running[@]} -gt 0 ]; do
    wait -n -p pid
    name=${running[$pid]}
    unset "running[$pid]"
    ended[$name]=yes
    [ -e "$logs/stage-$name.live" ] || cat "$logs/stage-$name.out"
    if [ "$name" = build ] && [ -e "$logs/build-failed" ]; then
        # No other stage can tell anything.
        for pid in "${!running[@]}"; do kill -- "-$pid" 2>/dev/null; done
        summary
    fi
    start_stages
done
summary

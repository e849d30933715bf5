#!/usr/bin/env bash
# Heaps, for kernels that communicate: what wtr_ext.h promises (heaps.c), and the two applications
# of examples/ggas, each compared with its version without heaps and with a serial computation. They
# run in one process, on 2 MPI ranks and on 2 daemons, through memory and through the proxy.
# Launches with too many work-groups must be refused, and the loss of a rank must end the others'
# kernels.
#
#   heaps.sh [--mpi openmpi|mpich] [--no-pool]      default: openmpi, and the pool
#
# PENSTOCK_BIN is the folder of penstock, libwater.so, libpenstock_energy.so and the shims (default:
# target/release). PROGRAM_S is the time limit of one program, LOST_S that for noticing the loss of
# a rank.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../tools/pool.sh"
: "${PROGRAM_S:=120}" "${LOST_S:=1}"
PENSTOCK_BIN=$(cd "$PENSTOCK_BIN" && pwd) || exit 1

mpi=openmpi pool=1
while [ $# -gt 0 ]; do
    case $1 in
        --mpi) mpi=${2:?--mpi wants openmpi or mpich}; shift 2 ;;
        --no-pool) pool=0; shift ;;
        *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; [ "$1" = --help ] && exit 0 || exit 2 ;;
    esac
done
[ -e "$PENSTOCK_BIN/libwater.so" ] || { echo "no libwater.so in $PENSTOCK_BIN: run \`make build\` first" >&2; exit 1; }

out=$(mktemp -d)
launched=
finish() {
    [ -z "$launched" ] || kill "$launched" 2>/dev/null
    [ -z "$POOL_DIR" ] || pool_stop
    rm -rf "$out"
}
trap finish EXIT
export LD_LIBRARY_PATH=$PENSTOCK_BIN${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset PENSTOCK_NODES WTR_TRANSPORT
"${CC:-cc}" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -g -I"$here/../../crates/water/include" -o "$out/heaps" "$here/heaps.c" \
    -L"$PENSTOCK_BIN" -lwater -lpthread || exit 1
make -s -f applications.mk -C "$here/../../examples/ggas" OUT="$out" LIBRARIES="$PENSTOCK_BIN" || exit 1
cd "$out" || exit 1

passed=0 failed=0 skipped=0
since() { awk "BEGIN { print $EPOCHREALTIME - $1 }"; }

# check NAME EXPECTED COMMAND...: the command must succeed and print the expected text.
check() {
    local name=$1 expected=$2 start=$EPOCHREALTIME text verdict=FAIL
    shift 2
    text=$("$@" 2>&1 </dev/null) && grep -q -- "$expected" <<<"$text" && verdict=ok
    printf '%-4s water/heaps/%-34s %6.1f s\n' "$verdict" "$name" "$(since "$start")"
    if [ $verdict = ok ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        tail -n 30 <<<"$text" | sed 's/^/        | /'
    fi
}

local_run() { timeout --kill-after=5 "$PROGRAM_S" env "POCL_DEVICES=pthread pthread" WTR_TRANSPORT=none "$@"; }
case $mpi in
    openmpi) launcher=(mpirun.openmpi --oversubscribe --bind-to none -n 2) ;;
    mpich) launcher=(mpiexec.mpich -n 2) ;;
esac
daemons_run() { pool_run "$PROGRAM_S" "$@"; }
ranks_run() { timeout --kill-after=5 "$PROGRAM_S" env POCL_DEVICES=pthread "${launcher[@]}" "$@"; }

small() {
    case $1 in
        stencil) echo --rows 33 --columns 70 --steps 41 --repeat 1 ;;
        nbody) echo --bodies 203 --steps 9 --repeat 1 ;;
    esac
}

# Runs all tests on two devices: of one process, of 2 ranks, or of 2 daemons.
both() {
    local way=$1 app
    # shellcheck disable=SC2046 # a word, or none
    check "$way/promises" "as promised" "${way}_run" ./heaps $([ "$way" = daemons ] && echo pool)
    for app in stencil nbody; do
        # shellcheck disable=SC2046 # words
        check "$way/$app" '"verified": true' "${way}_run" "./$app" --verify --json $(small $app)
        check "$way/$app/refused" 'never start' "${way}_run" "./$app" --refuse --groups 64 --"$([ $app = stencil ] && echo rows || echo bodies)" 4096
    done
}

# Kills rank 1 while kernels wait for each other. Rank 0 must return with an error that says so.
killed() {
    local start victim root pid line
    timeout --kill-after=5 "$PROGRAM_S" env POCL_DEVICES=pthread mpirun.openmpi --enable-recovery --oversubscribe --bind-to none -n 2 \
        ./stencil --rows 64 --columns 64 --steps 1000000000000 --only device </dev/null >killed.out 2>&1 &
    launched=$!
    for _ in $(seq 300); do
        victim='' root=''
        for pid in $(pgrep -f "^./stencil .*--steps 1000000000000 --only device"); do
            [ "$(readlink "/proc/$pid/cwd")" = "$out" ] || continue
            line=$(tr '\0' '\n' <"/proc/$pid/environ" | grep '^OMPI_COMM_WORLD_RANK=')
            [ "$line" = OMPI_COMM_WORLD_RANK=1 ] && victim=$pid
            [ "$line" = OMPI_COMM_WORLD_RANK=0 ] && root=$pid
        done
        # If the CPU time of the process grows fast, PoCL's threads execute the kernel.
        [ -n "$victim" ] && [ -n "$root" ] && [ "$(awk '{ print $14 }' "/proc/$victim/stat")" -gt 100 ] && break
        sleep 0.1
    done
    [ -n "$victim" ] && [ -n "$root" ] || { echo "no two ranks"; cat killed.out; return 1; }
    start=$EPOCHREALTIME
    kill -9 "$victim"
    for _ in $(seq 1000); do
        grep -q 'the heap was aborted\|the rank is lost' killed.out && break
        sleep 0.01
    done
    local took
    took=$(since "$start")
    wait "$launched"
    launched=
    cat killed.out
    echo "the other rank told it after $took s"
    grep -q 'the heap was aborted: member 1\|the rank is lost' killed.out && awk "BEGIN { exit !($took < $LOST_S) }" && echo "in time"
}

both local
# PoCL and Intel's runtime for CPUs: kernels of two compilers, and two thread pools.
intel=$POOL_ROOT/.venv-cuda/vendors/intel.icd
if [ -e "$intel" ] && [ -e /etc/OpenCL/vendors/pocl.icd ]; then
    mkdir vendors && cp "$intel" /etc/OpenCL/vendors/pocl.icd vendors
    platforms_run() {
        timeout --kill-after=5 "$PROGRAM_S" env "OCL_ICD_VENDORS=$out/vendors" "OPENCL_VENDOR_PATH=$out/vendors" POCL_DEVICES=pthread WTR_TRANSPORT=none "$@"
    }
    both platforms
else
    echo "SKIP water/heaps on two platforms: PoCL or Intel's runtime (tools/setup.sh cuda) is not installed"
    if is_required intel; then failed=$((failed + 1)); else skipped=$((skipped + 1)); fi
fi
if command -v "${launcher[0]}" >/dev/null && [ -e "$PENSTOCK_BIN/libwtr_mpi_$mpi.so" ]; then
    both ranks
    # shellcheck disable=SC2046 # words
    for app in stencil nbody; do
        check "ranks/$app/2-work-groups" '"verified": true' ranks_run "./$app" --verify --json --groups 2 $(small $app)
        check "ranks/$app/proxy" '"path": "proxy".*"verified": true' ranks_run "./$app" --verify --json --proxy $(small $app)
    done
    if [ "$mpi" = openmpi ]; then
        check ranks/killed "in time" killed
    fi
else
    echo "SKIP water/heaps on $mpi: ${launcher[0]} or libwtr_mpi_$mpi.so is not here (tools/setup.sh test; make shims)"
    if is_required mpi; then failed=$((failed + 1)); else skipped=$((skipped + 1)); fi
fi
if [ $pool = 1 ] && [ -x "$PENSTOCK_BIN/penstock" ]; then
    pool_start two || exit 1
    both daemons
else
    echo "SKIP water/heaps on daemons: no penstock in $PENSTOCK_BIN, or --no-pool"
    skipped=$((skipped + 1))
fi
check simulated "there are no heaps here" env WTR_TRANSPORT=none "WTR_SIM=$here/../../tools/sim/models/mc.json" ./heaps none
echo "$passed passed, $failed failed, $skipped skipped"
[ -z "${TEST_TALLY-}" ] || echo "$passed $failed $skipped" >>"$TEST_TALLY"
exit $((failed > 0))

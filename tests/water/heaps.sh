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
# target/release). PROGRAM_S is the time limit of one program.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../tools/pool.sh"
. "$here/../tally.sh"
: "${PROGRAM_S:=$(patience 5)}"
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
# Ranks that wait leave the processor to the workers, of which the library does not know.
export OMPI_MCA_mpi_yield_when_idle=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset PENSTOCK_NODES WTR_TRANSPORT
"${CC:-cc}" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -g -I"$here/../../crates/faces/water/include" -o "$out/heaps" "$here/heaps.c" \
    -L"$PENSTOCK_BIN" -lwater -lpthread || exit 1
make -s -f applications.mk -C "$here/../../examples/ggas" OUT="$out" LIBRARIES="$PENSTOCK_BIN" || exit 1
cd "$out" || exit 1

# check NAME EXPECTED COMMAND...: the command must succeed and print the expected text.
check() {
    local expected=$2 text
    tally_begin "water/heaps/$1"
    shift 2
    if text=$("$@" 2>&1 </dev/null) && grep -q -- "$expected" <<<"$text"; then
        report ok ""
    else
        report FAIL "it failed, or did not say \`$expected\`"
        tail -n 30 <<<"$text" | sed 's/^/        | /'
    fi
}

local_run() { limited "$PROGRAM_S" env "POCL_DEVICES=pthread pthread" WTR_TRANSPORT=none "$@"; }
case $mpi in
    openmpi) launcher=(mpirun.openmpi --oversubscribe --bind-to none -n 2) ;;
    mpich) launcher=(mpiexec.mpich -n 2) ;;
esac
daemons_run() { pool_run "$PROGRAM_S" "$@"; }
ranks_run() { limited "$PROGRAM_S" env POCL_DEVICES=pthread "${launcher[@]}" "$@"; }

small() {
    case $1 in
        stencil) echo --rows 33 --columns 70 --steps 41 --repeat 1 ;;
        nbody) echo --bodies 203 --steps 9 --repeat 1 ;;
    esac
}

# Runs the tests on two devices: of one process, of 2 ranks, or of 2 daemons. Each of them is two
# kernels that wait for each other and use both cores, so the lane `test` has each behaviour once.
both() {
    local way=$1 app
    # shellcheck disable=SC2046 # a word, or none
    check "$way/promises" "as promised" "${way}_run" ./heaps $([ "$way" = daemons ] && echo pool)
    for app in $(apps "$way"); do
        # shellcheck disable=SC2046 # words
        check "$way/$app" '"verified": true' "${way}_run" "./$app" --verify --json $(small $app)
    done
    for app in $(refusers "$way"); do
        check "$way/$app/refused" 'never start' "${way}_run" "./$app" --refuse --groups 64 --"$([ $app = stencil ] && echo rows || echo bodies)" 4096
    done
}
apps() { if runs all || [ "$1" = daemons ]; then echo stencil nbody; else echo stencil; fi; }
refusers() { if runs all; then echo stencil nbody; elif [ "$1" = local ]; then echo nbody; fi; }
lines_of() { echo $((1 + $(apps "$1" | wc -w) + $(refusers "$1" | wc -w))); }

# Sets `victim` and `root` to the processes of the ranks, and fails until both are there and execute
# the kernel: then PoCL's threads use CPU time.
find_ranks() {
    local pid rank
    victim='' root=''
    for pid in $(pgrep -f "^./stencil .*--steps 1000000000000 --only device"); do
        [ "$(readlink "/proc/$pid/cwd")" = "$out" ] || continue
        rank=$(tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')
        [ "$rank" = 1 ] && victim=$pid
        [ "$rank" = 0 ] && root=$pid
    done
    [ -n "$victim" ] && [ -n "$root" ] && [ "$(awk '{ print $14 }' "/proc/$victim/stat")" -gt 50 ]
}

# Kills rank 1 while kernels wait for each other. Rank 0 must return with an error that says so.
killed() {
    local start victim root
    limited "$PROGRAM_S" env POCL_DEVICES=pthread mpirun.openmpi --enable-recovery --oversubscribe --bind-to none -n 2 \
        ./stencil --rows 64 --columns 64 --steps 1000000000000 --only device </dev/null >killed.out 2>&1 &
    launched=$!
    if ! wait_until find_ranks; then
        echo "no two ranks"
        cat killed.out
        kill "$launched"
        return 1
    fi
    start=$EPOCHREALTIME
    kill -9 "$victim"
    wait_until grep -q 'the heap was aborted: member 1\|the rank is lost' killed.out
    awk "BEGIN { printf \"the other rank told it after %.1f s\\n\", $EPOCHREALTIME - $start }"
    wait "$launched"
    launched=
    cat killed.out
    grep -q 'the heap was aborted: member 1\|the rank is lost' killed.out && echo "the loss is told"
}

# PoCL and Intel's runtime for CPUs: kernels of two compilers, and two thread pools.
intel=$POOL_ROOT/.venv-cuda/vendors/intel.icd
has_platforms() { [ -e "$intel" ] && [ -e /etc/OpenCL/vendors/pocl.icd ]; }
has_ranks() { command -v "${launcher[0]}" >/dev/null && [ -e "$PENSTOCK_BIN/libwtr_mpi_$mpi.so" ]; }
# lacks NEED NAME WHY
lacks() {
    tally_begin "water/heaps/$2"
    if is_required "$1"; then report FAIL "$3"; else report skip "SKIPPED: $3"; fi
}

number=$((1 + $(lines_of local) + (pool ? $(lines_of daemons) : 0)))
if has_ranks; then
    number=$((number + $(lines_of ranks) + 1))
    ! runs all || number=$((number + 3))
    [ "$mpi" != openmpi ] || number=$((number + 1))
else
    number=$((number + 1))
fi
if runs all; then
    if has_platforms; then number=$((number + 5)); else number=$((number + 1)); fi
fi
tally_plan heaps $number

both local
if runs all; then
    if has_platforms; then
        mkdir vendors && cp "$intel" /etc/OpenCL/vendors/pocl.icd vendors
        platforms_run() {
            limited "$PROGRAM_S" env "OCL_ICD_VENDORS=$out/vendors" "OPENCL_VENDOR_PATH=$out/vendors" POCL_DEVICES=pthread WTR_TRANSPORT=none "$@"
        }
        both platforms
    else
        lacks intel platforms "PoCL or Intel's runtime (tools/setup.sh cuda) is not installed"
    fi
fi
if has_ranks; then
    both ranks
    # shellcheck disable=SC2046 # words
    for app in $(if runs all; then echo stencil; fi) nbody; do
        ! runs all || check "ranks/$app/2-work-groups" '"verified": true' ranks_run "./$app" --verify --json --groups 2 $(small $app)
        check "ranks/$app/proxy" '"path": "proxy".*"verified": true' ranks_run "./$app" --verify --json --proxy $(small $app)
    done
    [ "$mpi" != openmpi ] || check ranks/killed "the loss is told" killed
else
    lacks mpi ranks "${launcher[0]} or libwtr_mpi_$mpi.so is not here (tools/setup.sh test; make shims)"
fi
if [ $pool = 1 ]; then
    pool_start two || exit 1
    both daemons
fi
check simulated "there are no heaps here" env WTR_TRANSPORT=none "WTR_SIM=$here/../../tools/sim/models/mc.json" ./heaps none
tally_end

#!/usr/bin/env bash
# Runs random MPI calls with device memory on ranks of a real MPI, and compares their results with
# those of the same calls on the host's memory.
#
#   run.sh [--mpi openmpi|mpich[,...]] [--ranks N[,N...]] [--on unix|two] [--seed N] [--cases N]
#
# Default: all installed MPIs, 2 to 4 ranks, a pool of one node on a Unix socket. PENSTOCK_BIN is
# the folder of penstock, and of cuda/ with libcuda.so.1 and libpenstock_mpi_*.so.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../tools/pool.sh"
. "$here/../tally.sh"

mpis=openmpi,mpich ranks=2,3,4 on=unix seed=1 cases=240
limit=$(patience 5)
while [ $# -gt 0 ]; do
    case $1 in
        --mpi) mpis=${2:?--mpi wants openmpi or mpich}; shift 2 ;;
        --ranks) ranks=${2:?--ranks wants numbers}; shift 2 ;;
        --on) on=${2:?--on wants a pool}; shift 2 ;;
        --seed) seed=${2:?--seed wants a number}; shift 2 ;;
        --cases) cases=${2:?--cases wants a number}; shift 2 ;;
        *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; [ "$1" = --help ] && exit 0 || exit 2 ;;
    esac
done
libraries=$PENSTOCK_BIN/cuda
if [ ! -e "$libraries/libcuda.so.1" ]; then
    echo "no libcuda.so.1 in $libraries: run \`make build\` first" >&2
    exit 1
fi

out=$(mktemp -d)
trap 'pool_stop; rm -rf "$out"' EXIT
trap 'exit 130' INT TERM
# By default, Open MPI's launcher refuses root.
# Ranks that wait leave the processor to the workers, of which the library does not know.
export OMPI_MCA_mpi_yield_when_idle=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 POCL_DEVICES=pthread
pool_start "$on" || exit 1

# launch MPI RANKS PROGRAM...: runs a program on ranks.
launch() {
    local launcher
    case $1 in
        openmpi) launcher=(mpirun.openmpi --oversubscribe --bind-to none) ;;
        mpich) launcher=(mpiexec.mpich) ;;
    esac
    pool_run "$limit" "${launcher[@]}" -n "$2" "${@:3}" </dev/null
}

# check NAME MPI RANKS PROGRAM...: one run, which must end with its counts.
check() {
    local text counts
    tally_begin "mpi/$1 $on"
    text=$(launch "${@:2}" 2>&1)
    local code=$?
    counts=$(sed -nE 's/^calls: ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' \
        <<<"$text")
    # With small messages, workers must have moved some.
    [[ $1 == *-workers ]] && grep -q '^workers: 0 ' <<<"$text" && code="0, without the workers"
    if [ "$code" = 0 ] && [ -n "$counts" ]; then
        # shellcheck disable=SC2086
        report ok "$(grep -E '^([0-9]+ KiB|workers:)' <<<"$text" | paste -sd ' ')" $counts
    else
        report FAIL "$(how_it_ended "$code")"
        tail -n 30 <<<"$text" | sed 's/^/        | /'
    fi
}

# number_of worker|process RANK: the process id of a rank of the killed case, or those of its
# workers: `penstock run` has had a session before it became the rank.
number_of() {
    local process
    process=$(sed -n "s/^rank $2 is process //p" "$out/killed")
    [ "$1" = process ] && echo "$process" && return
    workers_of "process $process "
}

# workers_of START: the process ids of the workers of clients whose names have this start.
workers_of() {
    env "${POOL_ENV[@]}" "$PENSTOCK_BIN/penstock" status --json | python3 -c "
import json, sys
sessions = json.load(sys.stdin)['nodes'][0]['status']['sessions']
print(*(one['worker'] for one in sessions if one['client'].startswith('$1')))"
}

# The ranks are there, and have moved some rounds, so that the end comes in the middle of one.
ranks_move() {
    [ "$(grep -c '^rank . is process' "$out/killed")" = 2 ] &&
        [ "$(grep -c '^rank . has moved' "$out/killed")" = 2 ] || ! kill -0 "$job" 2>/dev/null
}
none_left() {
    local workers
    workers=$(workers_of "") && [ -z "$workers" ]
}

# killed MPI worker|process RANK [broadcast]: ends a rank, or its worker, while workers send from
# rank 0 to rank 1. After the end of a worker, both ranks must hear of it. After that of a rank, MPI
# ends the job. In all cases, nobody waits longer than the limit, and no session is left.
killed() {
    local job code fault=
    tally_begin "mpi/$1-killed-$2-$3${4:+-$4} $on"
    : >"$out/killed"
    CALLS_KILLED=${4:-send} CALLS_SINGLE=1 launch "$1" 2 "$PENSTOCK_BIN/penstock" run --no-local \
        --mpi -- "$out/calls-$1" >"$out/killed" 2>&1 &
    job=$!
    wait_until ranks_move || fault="the ranks do not get to work"
    # shellcheck disable=SC2046
    kill -9 $(number_of "$2" "$3") || fault="there is nothing to kill"
    wait $job
    code=$?
    case $2 in
        worker)
            [ $code -eq 0 ] || fault=$(how_it_ended $code)
            grep -q 'ended in .* with an error' "$out/killed" || fault="no rank got an error" ;;
        process) case $code in 0 | 124) fault=$(how_it_ended $code) ;; esac ;;
    esac
    wait_until none_left || fault="sessions are left"
    if [ -z "$fault" ]; then
        report ok "$(grep -c 'without an error' "$out/killed") ranks had no error"
    else
        report FAIL "$fault"
        tail -n 30 "$out/killed" | sed 's/^/        | /'
    fi
}

# Prints what is ended in the middle of the work. The daemon tells the process of a client only if
# that comes over a Unix socket.
ends() {
    [ "$on" = unix ] || return
    printf '%s\n' "worker 0" "worker 1 broadcast" "process 1"
    [ "${TEST_LANE-}" != all ] || printf '%s\n' "worker 1" "worker 0 broadcast" "process 0"
}

number=0
for mpi in ${mpis//,/ }; do
    if command -v "mpicc.$mpi" >/dev/null; then
        for count in ${ranks//,/ }; do number=$((number + 3)); done
        number=$((number + $(ends | wc -l) + (${#POOL_PIDS[@]} == 1)))
    else
        number=$((number + 1))
    fi
done
tally_plan mpi $number

for mpi in ${mpis//,/ }; do
    tally_begin "mpi/$mpi"
    if ! command -v "mpicc.$mpi" >/dev/null; then
        if is_required mpi; then
            report FAIL "mpicc.$mpi is required, and is missing"
        else
            report skip "SKIPPED: mpicc.$mpi is not installed"
        fi
        continue
    fi
    # The header of MPICH gives arrays sizes that MPI_STATUSES_IGNORE does not have.
    flags=(-std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-stringop-overflow -O1 -g)
    if ! "mpicc.$mpi" "${flags[@]}" -o "$out/calls-$mpi" "$here"/*.c -L"$libraries" \
        -l:libcuda.so.1 -lpthread >"$out/log" 2>&1; then
        report FAIL "the test does not build"
        sed 's/^/        | /' "$out/log"
        continue
    fi
    for count in ${ranks//,/ }; do
        check "$mpi-$count" "$mpi" "$count" "$PENSTOCK_BIN/penstock" run --no-local \
            --mpi="$mpi" -- "$out/calls-$mpi" "$seed" "$cases"
    done
    # The path from worker to worker also for small messages, with one thread and with several.
    for count in ${ranks//,/ }; do
        run=("$PENSTOCK_BIN/penstock" run --no-local --mpi="$mpi" --)
        run+=("$out/calls-$mpi" "$seed" "$cases")
        check "$mpi-$count-workers" "$mpi" "$count" env PENSTOCK_MPI_WORKERS=256 CALLS_SINGLE=1 \
            "${run[@]}"
        check "$mpi-$count-threads" "$mpi" "$count" env PENSTOCK_MPI_WORKERS=256 "${run[@]}"
    done
    while read -ra words; do killed "$mpi" "${words[@]}"; done < <(ends)
    # The end of the pool. `--mpi` tells the MPI by the program file.
    if [ ${#POOL_PIDS[@]} -eq 1 ]; then
        disown "${POOL_PIDS[0]}"
        check "$mpi-lost" "$mpi" 2 env PENSTOCK_TEST_VICTIM="${POOL_PIDS[0]}" \
            "$PENSTOCK_BIN/penstock" run --no-local --mpi -- "$out/calls-$mpi"
        pool_stop
        pool_start "$on" || exit 1
    fi
done
tally_end

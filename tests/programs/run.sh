#!/bin/bash
# Runs real, unmodified programs, and compares their results on a pool with the local ones.
#
#   tests/programs/run.sh [--on local|unix|tcp|two] [--lane fast|slow|all] [NAME...]
#
# Each program has a file NAME.sh beside this one. Logs and results: target/programs-log/NAME/POOL.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../tools/pool.sh"
. "$here/../tally.sh"
on=local
lane=all
names=()
while [ $# -gt 0 ]; do
    case $1 in
        --on) on=$2; shift ;;
        --lane) lane=$2; shift ;;
        -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
        -*) echo "no such option: $1" >&2; exit 2 ;;
        *) names+=("${1%.sh}") ;;
    esac
    shift
done
if [ ${#names[@]} -eq 0 ]; then
    for file in "$here"/*.sh; do
        name=$(basename "$file" .sh)
        [ "$name" = run ] || names+=("$name")
    done
fi

ROOT=$POOL_ROOT
PROGRAM_TESTS=$here
PYTHON=$ROOT/.venv/bin/python
CACHE=$ROOT/.cache
export ROOT PROGRAM_TESTS PYTHON CACHE PENSTOCK_PROGRAMS
results=$PENSTOCK_TARGET/programs-log

PROGRAM_S=$(patience 5)
export PROGRAM_S

# Settings and functions that a program's file may replace.
defaults() {
    LANE=fast                # or slow: only in `make test-programs` and `make test-all`
    LIMIT_S=$PROGRAM_S
    SEVERAL=no               # yes: also run on two nodes
    LOCAL=yes                # no: `run` itself knows what is right, and nothing is compared
    VERSION=1                # part of the key of the kept local result
    needs() { true; }        # fails, and prints why, if the program is not there
    run() { false; }         # runs it in the current folder; what is compared goes to result.txt
    compare() { diff -u "$1/result.txt" "$2/result.txt"; }
}

# Runs one program in a clean folder. $1 is the name of the pool, and of the folder.
run_in() {
    local folder=$results/$program/$1
    # The folder itself stays, because a running daemon may have let its workers read it.
    mkdir -p "$folder"
    find "$folder" -mindepth 1 -delete
    (
        cd "$folder" || exit 1
        [ "$1" = local ] && POOL_ENV=()
        # `timeout` cannot run a function, but a shell that reads the same file. Caches of the
        # program must not carry a result from the pool to the local run or back.
        POOL=$1 XDG_CACHE_HOME=$CACHE/xdg-$1 pool_run "$LIMIT_S" bash -c '
            '"$(declare -f defaults)"'
            defaults; . "$0"; run' "$here/$program.sh" >log.txt 2>&1
    )
}

trap pool_stop EXIT
trap 'exit 130' INT TERM
export POCL_DEVICES=pthread
show_log() { tail -n "${2:-25}" "$1" | sed 's/^/        | /'; }

pool_ready=
# Whether this run has a program.
is_chosen() {
    defaults
    . "$here/$1.sh" || return
    [ "$lane" = all ] || [ "$lane" = "$LANE" ] || return
    [ "$on" != two ] || [ "$SEVERAL" = yes ]
}

one() {
    local code local_started why
    defaults
    . "$here/$program.sh"
    if ! why=$(needs); then
        if is_required programs; then report FAIL "$why"; else report skip "SKIPPED: $why"; fi
        return
    fi
    # The local run comes first, without any pool in its environment. Its result is kept for the
    # other pools of one test run.
    local stamp=$results/$program/local/done-$VERSION-${TEST_RUN:-$$}
    if [ "$on" = local ] || { [ "$LOCAL" = yes ] && [ ! -e "$stamp" ]; }; then
        local_started=$(date +%s.%N)
        run_in local
        code=$?
        if [ $code -ne 0 ]; then
            report FAIL "does not run locally: $(how_it_ended $code)"
            show_log "$results/$program/local/log.txt"
            return
        fi
        echo "$(date +%s.%N) $local_started" | awk '{printf "%.1f\n", $1 - $2}' >"$stamp"
    fi
    if [ "$on" = local ]; then report ok "$(tail -n 1 "$results/$program/local/note.txt" 2>/dev/null)"; return; fi
    if [ -z "$pool_ready" ]; then
        pool_start "$on" || exit 1
        pool_ready=1
    fi
    run_in "$on"
    code=$?
    if [ $code -ne 0 ]; then
        report FAIL "$(how_it_ended $code)"
        show_log "$results/$program/$on/log.txt"
        return
    fi
    if [ "$LOCAL" = no ]; then
        report ok "$(tail -n 1 "$results/$program/$on/note.txt" 2>/dev/null)"
    elif compare "$results/$program/local" "$results/$program/$on" >"$results/$program/$on/difference.txt" 2>&1; then
        report ok "as locally ($(cat "$stamp") s)  $(tail -n 1 "$results/$program/$on/note.txt" 2>/dev/null)"
    else
        report FAIL "differs from the local run"
        show_log "$results/$program/$on/difference.txt"
    fi
}
chosen=()
for program in "${names[@]}"; do
    if [ ! -e "$here/$program.sh" ]; then echo "no such program: $program" >&2; exit 2; fi
    ! is_chosen "$program" || chosen+=("$program")
done
tally_plan programs ${#chosen[@]}
for program in "${chosen[@]}"; do
    tally_begin "program/$program $on"
    one
done
tally_end

#!/bin/bash
# Builds and runs the C tests.
#
#   tests/c/run.sh [--on KIND] [--times N] [NAME...]
#
# KIND is a pool of tools/pool.sh; without it, the programs use the local driver. Prints one line
# per program with its time, the log of a program that fails, and a summary. With --times each
# program runs N times, and each run must pass. Logs stay in target/c-tests/log. A program is NAME.c
# with NAME-*.c and NAME.h; multi_* and stress* get several PoCL devices.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../tools/pool.sh"
. "$here/../tally.sh"
on=local
times=1
names=()
while [ $# -gt 0 ]; do
    case $1 in
        --on) on=$2; shift ;;
        --times) times=$2; shift ;;
        -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
        -*) echo "no such option: $1" >&2; exit 2 ;;
        *) names+=("${1%.c}") ;;
    esac
    shift
done
if [ ${#names[@]} -eq 0 ]; then
    for file in "$here"/*.c; do
        name=$(basename "$file" .c)
        case $name in harness | errors | *-*) ;; *) names+=("$name") ;; esac
    done
fi

out=$PENSTOCK_TARGET/c-tests
mkdir -p "$out/log"
flags="-std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror -I$here/../../include"
# is_older FILE SOURCE...: whether a file has to be made anew.
is_older() {
    local source
    for source in "${@:2}"; do
        if [ -e "$source" ] && [ ! "$1" -nt "$source" ]; then return 0; fi
    done
    return 1
}
# make_new FILE ARGUMENT...: compiles to a new file each time, because another run may be using the
# old one. If that fails, no older file passes in its place.
make_new() {
    if gcc $flags "${@:2}" -o "$1.$$"; then mv "$1.$$" "$1"; else rm -f "$1"; fi
}
# What all programs share is compiled once.
shared=(harness errors)
build_shared() {
    local headers=("$here/harness.h" "$here"/../../include/CL/*.h)
    ! is_older "$out/$1.o" "$here/$1.c" "${headers[@]}" || make_new "$out/$1.o" -c "$here/$1.c"
}
build() {
    local source sources=("$here/$1.c") objects=("${shared[@]/#/$out/}")
    objects=("${objects[@]/%/.o}")
    for source in "$here/$1"-*.c; do [ -e "$source" ] && sources+=("$source"); done
    local headers=("$here/harness.h" "$here/$1.h" "$here"/../../include/CL/*.h)
    ! is_older "$out/$1" "${sources[@]}" "${objects[@]}" "${headers[@]}" ||
        make_new "$out/$1" "${sources[@]}" "${objects[@]}" -lOpenCL -lpthread -lm
}
# The first device of a mixed pool is Intel's.
[ "$on" = mixed ] && export PENSTOCK_TEST_DRIVER_VENDORS=$here/../../.venv-cuda/vendors
jobs_max=$(nproc)
for name in "${shared[@]}"; do build_shared "$name" & done
wait
# Without them, a program of an earlier run would pass.
for name in "${shared[@]}"; do [ -e "$out/$name.o" ] || exit 1; done
for name in "${names[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs_max" ]; do wait -n; done
    build "$name" &
done
wait

trap pool_stop EXIT
trap 'exit 130' INT TERM
start_pool() { # $1: the devices of each node
    export POCL_DEVICES=$1
    if [ "${pool_devices:-}" = "$1" ]; then return 0; fi
    [ -n "${pool_devices:-}" ] && pool_stop
    pool_devices=$1
    pool_start "$on"
}
if ! [ "$times" -ge 1 ] 2>/dev/null; then echo "--times takes a number from 1 on, not $times" >&2; exit 2; fi
runs=()
for program in "${names[@]}"; do
    for ((run = 0; run < times; run++)); do runs+=("$program"); done
done
tally_plan c ${#runs[@]}
number=0
for program in "${runs[@]}"; do
    tally_begin "c/$program $on"
    # PoCL 3.1 hangs with "pthread basic" in these tests, even locally. Two devices of one kind
    # work.
    case $program-$on in multi_*-two | multi_*-far | multi_*-encrypted | multi_*-apart | multi_*-mixed) devices=pthread ;; multi_* | stress*) devices="pthread pthread" ;; *) devices=pthread ;; esac
    start_pool "$devices"
    case $? in
        0) ;;
        77)
            pool_devices=
            report skip "SKIPPED: this host lacks what the pool needs"
            continue ;;
        *) exit 1 ;;
    esac
    number=$((number + 1))
    log=$out/log/$program-$on.log
    [ "$times" -gt 1 ] && log=$out/log/$program-$on-$number.log
    PENSTOCK_TEST_POOL=$on pool_run "${TEST_SECONDS_MAX:-$(patience 5)}" "$out/$program" >"$log" 2>&1
    code=$?
    # A program without a summary counts as one failure.
    counts=$(sed -n 's/.*: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped.*/\1 \2 \3/p' "$log" | tail -n 1)
    note=$(tail -n 1 "$log" | sed 's/^[A-Z]* [^ ]*: //')
    # shellcheck disable=SC2086 # three numbers
    case $code:$counts in
        0:?*) report ok "$note" $counts ;;
        77:?*) report skip "$note" $counts ;;
        0:) report FAIL "ended with code 0 and without its counts" ;;
        77:) report skip "SKIPPED: $note" ;;
        1:?*) report FAIL "$note" $counts ;;
        *) report FAIL "$(how_it_ended $code)" ;;
    esac
    case $code in 0 | 77) ;; *) grep -v '^  ok ' "$log" | tail -n 40 | sed 's/^/        | /' ;; esac
done
tally_end

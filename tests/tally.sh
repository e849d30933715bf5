# Counts the cases of a test script, prints one line for each, and ends a command that hangs. The
# scripts (bash) source this file after tools/pool.sh. tests/tally.py says what TEST_TALLY and
# TEST_PLANT are.
#
#   tally_plan RUNNER COUNT      announces the number of lines that will come
#   tally_begin NAME             begins a case: sets `name`, and the time from which it counts
#   report VERDICT NOTE [PASSED FAILED SKIPPED]
#                                ends the case: ok, skip or FAIL. One line may count several cases.
#   tally_end                    prints the counts, and ends the script
#   limited SECONDS COMMAND...   runs a command, whose process group ends at this limit
#   how_it_ended CODE            says how a command ended that `limited` or `pool_run` ran
#   runs LANE                    whether cases of this lane run now (tests/patience.py)

passed=0 failed=0 skipped=0 tally_runner=
tally_write() { [ -z "${TEST_TALLY-}" ] || printf '%s\n' "$1" >>"$TEST_TALLY"; }

tally_plan() {
    local count=$2 planted=''
    tally_runner=$1
    case ${TEST_PLANT-} in
        "$1" | all) planted=fail count=1 ;;
        "$1:hang" | all:hang) planted=hang count=1 ;;
    esac
    tally_write "plan"$'\t'"$count"$'\t'"$1"
    [ -n "$planted" ] || return 0
    # A planted case runs in place of all others.
    tally_begin "$tally_runner/planted"
    if [ $planted = hang ]; then
        limited 3 sleep 1000
        report FAIL "$(how_it_ended $?)"
    else
        report FAIL "this case is planted, and fails"
    fi
    tally_end
}

tally_begin() { name=$1 started=$EPOCHREALTIME; }

report() {
    local verdict=$1 note=$2 counts took
    case $verdict in
        ok) counts="1 0 0" ;;
        skip) counts="0 0 1" ;;
        *) verdict=FAIL counts="0 1 0" ;;
    esac
    [ $# -le 2 ] || counts="$3 $4 $5"
    # A case that failed is never counted among those that passed.
    case $verdict:$counts in FAIL:*\ 0\ *) counts="0 1 0" ;; esac
    case $verdict in
        ok) passed=$((passed + 1)) ;;
        skip) skipped=$((skipped + 1)) ;;
        *) failed=$((failed + 1)) ;;
    esac
    took=$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $started }")
    printf '%-4s %-42s %7s s  %s\n' "$verdict" "$name" "$took" "$note"
    tally_write "$counts"$'\t'"$name"$'\t'"$took"$'\t'"$tally_runner"
}

tally_end() {
    echo "$passed passed, $failed failed, $skipped skipped"
    exit $((failed > 0))
}

limited() { timeout --kill-after=5 "$@"; }

how_it_ended() {
    case $1 in
        124 | 137) echo "still running at its limit of time" ;;
        *) echo "ended with code $1" ;;
    esac
}

runs() {
    case ${TEST_LANE:-test}:$1 in
        test:test | all:test | all:all | perf:perf) true ;;
        *) false ;;
    esac
}

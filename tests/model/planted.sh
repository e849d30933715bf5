#!/bin/bash
# Plants one defect after the other into the whole system. The checker must find each of them.
#
#   tests/model/planted.sh [--seconds N] [--shrink-seconds N] [--no-build] [NAME...]
#
# Builds Penstock with planted defects and delays in target/planted, and runs random programs on a
# pool for each defect. NAME is a defect of crates/base/trial/src/defect.rs or a rule of
# crates/pool/coherence/src/rules.rs (default: the table below); NAME:KIND waits for a finding of
# this kind, such as wrong-bytes or hang. --seconds limits the search for each (600). Prints a table
# for docs/notes/checker.md. A program with a finding must be right without the defect; otherwise it
# is kept in target/model, and the search goes on. Exits with 1 if a defect was not found.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
seconds=600
shrink=30
build=yes
names=()
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) seconds=$2; shift ;;
        --shrink-seconds) shrink=$2; shift ;;
        --no-build) build= ;;
        -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) names+=("$1") ;;
    esac
    shift
done

# The name, the pool that shows the defect, and features that random programs lack by default
# (tests/model/run.sh says which, and why).
table='
HostReadAfterWrite      unix
HostWriteAfterWrite     two
UnsetEventHolds:wrong-bytes two
UnsetEventHolds:hang    two
BehindHeldInOrder       unix
ClientRunHolds          unix
FetchWhatIsRead         two
FetchAroundPartialWrite two
FetchInitial            two
WriteMakesOthersOld     two
LeaveAfterWriters       two
ReadAfterArrival        two
FollowBlockingWrites    unix
EndAfterHostWrites      two
InPlaceWhenIdle         unix
InPlaceWhenNothingHeld  unix
InPlaceAfterWaits       unix
InPlaceAfterBlockingWrites unix
early-end               two
lost-wait               two
old-region              two
arrived-early           two
first-piece             two
last-piece              two
fill-offset             unix
unmap-page              two
map-chain               unix
device-chain            two
held-first              unix
finish-early            two
svm-finish              unix
callback-early          two
event-early             two
launch-lost             unix
failed-launch-stale     two
ring-order              unix
ends-overtake           unix
rect-pitch              unix
host-pitch              unix
user-event-failure      unix
pump-one                unix
view-overwrite          two
times-early             unix
open-before             two
barrier-passed          two
trust-const             two
new-queue               unix
late-args               unix
torn-read               unix
release-ends            two
copy-swap               unix
creation-bytes          two
'

target=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")/planted
if [ -n "$build" ]; then
    (cd "$root" && CARGO_TARGET_DIR=$target cargo build --profile quick -p penstock-trial -p penstock-client \
        -p penstock-cli -p penstock-opencl -p penstock-check \
        --features penstock-client/planted,penstock-trial/test-delays) || exit 2
fi
export PENSTOCK_BIN=${PENSTOCK_BIN:-$target/quick}
[ ${#names[@]} -eq 0 ] && mapfile -t names < <(awk 'NF { print $1 }' <<<"$table")

# Prints what goes wrong with a defect of this name.
about() {
    sed -n "s/^    [A-Za-z]* \"$1\" \"\(.*\)\",\$/\1/p" "$root/crates/base/trial/src/defect.rs"
    awk -v name="$1" '/^ *\/\/\/ / {sub(/^ *\/\/\/ /, ""); doc = doc (doc ? " " : "") $0; next}
        $1 == name "," {print "Not applied: " doc} {doc = ""}' \
        "$root/crates/pool/coherence/src/rules.rs"
}

# Prints the first value of a key in a summary.
value() {
    sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$2" | head -n 1
}

kept=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")/model
mkdir -p "$kept"
missed=0
folder=$(mktemp -d "${TMPDIR:-/tmp}/penstock-planted.XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
echo '| defect | what goes wrong | pool | finding | programs | seconds | operations left |'
echo '|---|---|---|---|---|---|---|'
for name in "${names[@]}"; do
    read -r pool with < <(awk -v name="$name" '$1 == name { print $2, $3; found = 1 } END { if (!found) print "two" }' <<<"$table")
    defect=${name%%:*} kind=
    [ "$defect" = "$name" ] || kind=${name#*:}
    what=$(about "$defect")
    if [ -z "$what" ]; then
        echo "no such defect: $name" >&2
        exit 2
    fi
    out=$folder/$name.json
    seed=1 programs=0 spent=0
    while :; do
        left=$(awk -v all="$seconds" -v spent="$spent" 'BEGIN { print int(all - spent) }')
        if [ "$left" -le 0 ]; then
            status=0
            break
        fi
        PENSTOCK_TEST_PLANT=$defect MODEL_WITH=$with "$here/run.sh" --on "$pool" --seconds "$left" --findings 1 \
            --seed "$seed" --shrink-seconds "$shrink" --hang-seconds 8 --json >"$out" 2>"$folder/$name.log"
        status=$?
        programs=$((programs + $(value programs "$out" || echo 0)))
        spent=$(awk -v a="$spent" -v b="$(value "after_seconds" "$out")" 'BEGIN { print a + b }')
        [ "$status" -eq 1 ] || break
        if [ -n "$kind" ] && [ "$(value kind "$out")" != "${kind//-/ }" ]; then
            seed=$(($(value seed "$out") + 1))
            continue
        fi
        # The same program must be right without the defect. Otherwise it found something else.
        file=$(value file "$out")
        MODEL_WITH=$with "$here/run.sh" --on "$pool" --replay "${file%.c}.json" --programs 5 --hang-seconds 8 \
            >"$folder/replay.log" 2>&1 && break
        cp "$file" "${file%.c}.json" "$kept"
        echo "$name: the program of seed $(value seed "$out") is wrong without the defect, too: ${file##*/}" >&2
        seed=$(($(value seed "$out") + 1))
    done
    case $status in
        1)
            printf '| `%s` | %s | %s | %s | %s | %.1f | %s |\n' "$defect" "$what" "$pool" \
                "$(value kind "$out") in $(value act "$out")" "$programs" "$spent" "$(value operations "$out")" ;;
        0)
            printf '| `%s` | %s | %s | not found | %s | %s | |\n' "$defect" "$what" "$pool" "$programs" "$seconds"
            missed=1 ;;
        *)
            tail -n 5 "$folder/$name.log" >&2
            exit 2 ;;
    esac
done
exit "$missed"

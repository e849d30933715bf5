#!/usr/bin/env bash
# Builds the six applications, runs both versions of each with --verify, and prints a table. Fails if a result is wrong.
#
#   run.sh [--libwater DIR] [--out DIR] [--small] [-- OPTIONS...]
#
#   --libwater DIR  where libwater.so is (default: target/release)
#   --out DIR       where to build (default: a temporary folder)
#   --small         the least sizes that show something, for tests
#   -- OPTIONS...   for all programs, as in: -- --repeat 5
#
# OpenCL runs on one device. libWater takes all; where PoCL is the only platform it is told to show two devices, which share the cores, so that
# there is something to split. PROGRAM_S is the time that one program may take.
set -euo pipefail
cd "$(dirname "$0")"

: "${PROGRAM_S:=300}"
libwater=../../target/release out='' small=0 options=()
while [ $# -gt 0 ]; do
    case $1 in
        --libwater) libwater=${2:?--libwater wants a folder}; shift 2 ;;
        --out) out=${2:?--out wants a folder}; shift 2 ;;
        --small) small=1; shift ;;
        --) shift; options=("$@"); break ;;
        *) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; [ "$1" = --help ] && exit 0 || exit 2 ;;
    esac
done
[ -e "$libwater/libwater.so" ] || { echo "there is no libwater.so in $libwater: build it, or say where it is with --libwater" >&2; exit 1; }
libwater=$(cd "$libwater" && pwd)
if [ -z "$out" ]; then
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
fi
make -s OUT="$out" LIBWATER="$libwater"

small_sizes() {
    case $1 in
        perlin_noise) echo --size 200 ;;
        nbody) echo --size 500 --steps 3 ;;
        knn) echo --size 2000 --queries 100 ;;
        floyd) echo --size 64 --block 8 ;;
        matrix_mul) echo --size 100 ;;
        lin_reg) echo --size 500 --points 1000 ;;
    esac
}

# One value of the line of JSON that a program printed.
value() { sed -nE "s/.*\"$2\": \"?([^\",}]*).*/\1/p" <<<"$1"; }

failed=0
run() {
    local line
    if ! line=$(timeout "$PROGRAM_S" "$out/$1-$2" --verify --json "${@:3}"); then
        failed=1
        [ -n "$line" ] || { echo "- - failed"; return; }
    fi
    echo "$(value "$line" devices) $(value "$line" seconds) $([ "$(value "$line" verified)" = true ] && echo right || echo WRONG)"
}

printf '%-14s %24s %24s\n' '' OpenCL libWater
printf '%-14s' application
printf ' %7s %9s %6s' devices seconds result devices seconds result
echo
for app in perlin_noise nbody knn floyd matrix_mul lin_reg; do
    sizes=()
    [ $small = 0 ] || read -ra sizes <<<"$(small_sizes $app)"
    printf '%-14s' $app
    result=$(run $app opencl "${sizes[@]}" "${options[@]}")
    printf ' %7s %9s %6s' $result
    result+=" $(POCL_DEVICES=${POCL_DEVICES:-pthread pthread} LD_LIBRARY_PATH=$libwater${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} run $app water "${sizes[@]}" "${options[@]}")"
    printf ' %7s %9s %6s\n' ${result#* * * }
    case $result in *WRONG* | *failed*) failed=1 ;; esac
done
exit $failed

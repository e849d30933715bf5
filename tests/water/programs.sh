#!/usr/bin/env bash
# Checks that the headers compile on their own. Runs Listing 1 of the paper, a test of the order of
# events, and both versions of the six applications at small sizes, in one process, with the
# libwater.so in the given folder.
#
#   programs.sh DIR_OF_LIBWATER
set -euo pipefail
cd "$(dirname "$0")"
libwater=$(cd "${1:?the folder of libwater.so}" && pwd)
include=$PWD/../../crates/faces/water/include
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export LD_LIBRARY_PATH=$libwater${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
strict=(-Wall -Wextra -pedantic -Werror "-I$include")
link=("-L$libwater" -lwater)

"${CC:-cc}" -std=c99 "${strict[@]}" -o "$out/header-c" header.c "${link[@]}"
"$out/header-c"
"${CXX:-c++}" -std=c++11 "${strict[@]}" -o "$out/header-cpp" header.cpp "${link[@]}"
"$out/header-cpp"
for header in wtr.h wtr_ext.h; do
    echo "#include <$header>" | "${CC:-cc}" -std=c99 "${strict[@]}" -fsyntax-only -x c -
    echo "#include <$header>" | "${CXX:-c++}" -std=c++11 "${strict[@]}" -fsyntax-only -x c++ -
done
echo "headers: C99 and C++11, nothing to warn of"

"${CC:-cc}" -std=c11 -Wall -Wextra "-I$include" -o "$out/listing1" listing1.c "${link[@]}"
POCL_DEVICES=pthread timeout "${PROGRAM_S:-300}" "$out/listing1"
"${CC:-cc}" -std=c11 -Wall -Wextra "-I$include" -o "$out/order" order.c "${link[@]}"
POCL_DEVICES="pthread pthread" timeout "${PROGRAM_S:-300}" "$out/order" 5

../../examples/libwater/run.sh --libwater "$libwater" --out "$out" --small

#!/bin/bash
# Copies this host's PoCL with all that it needs to a folder, for tools/gpu-kit/build.sh.
#
#   tools/gpu-kit/pocl.sh FOLDER WORK
#
# The libraries of LLVM use libz3 and libxml2 (with 30 MB of tables) for what PoCL never does. Two
# libraries with the same symbols, which do nothing, take their place.
set -eu
folder=$1 work=$2
pocl=$(ldconfig -p | sed -n 's/.*libpocl\.so\.2 .*=> //p' | head -n 1)
[ -n "$pocl" ] || { echo "no PoCL here: the kit goes without" >&2; exit 0; }
mkdir -p "$folder" "$work"

# Libraries of the C and C++ runtimes are on every system, as old as ours or newer.
present='^(linux-vdso|libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|ld-linux.*)\.so'
needed() { ldd "$1" | awk '$2 == "=>" { print $1, $3 }'; }

# stand_in NAME PREFIX: a library that has the functions with this prefix that LLVM uses.
stand_in() {
    local name=$1 prefix=$2 real symbol versions library
    real=$(needed "$pocl" | awk -v name="$name" '$1 == name { print $2 }')
    [ -n "$real" ] || return 0
    : >"$work/$prefix.c"
    for library in $(needed "$pocl" | awk '/libLLVM|libclang/ { print $2 }'); do
        nm -D --undefined-only "$library"
    done | awk '{ print $NF }' | grep "^$prefix" | sort -u >"$work/$prefix.symbols"
    while read -r symbol; do
        echo "void ${symbol%%@*}(void) { __builtin_trap(); }" >>"$work/$prefix.c"
    done <"$work/$prefix.symbols"
    versions=$(sed -n 's/.*@//p' "$work/$prefix.symbols" | sort -u)
    {
        for version in $versions; do
            echo "$version { global:"
            grep "@$version\$" "$work/$prefix.symbols" | sed 's/@.*/;/'
            echo "};"
        done
    } >"$work/$prefix.map"
    local options=(-shared -fPIC -w "-Wl,-soname,$name")
    [ -n "$versions" ] && options+=("-Wl,--version-script,$work/$prefix.map")
    gcc "${options[@]}" -o "$folder/$name" "$work/$prefix.c"
}

stand_in libz3.so.4 Z3_
stand_in libxml2.so.2 xml
cp -L "$pocl" "$folder/libpocl.so.2"
needed "$pocl" | while read -r name path; do
    [[ $name =~ $present || $name =~ ^libicu|^liblzma ]] && continue
    [ -e "$folder/$name" ] || cp -L "$path" "$folder/$name"
done
find "$folder" -name '*.so*' -exec strip --strip-unneeded {} +
# PoCL looks for its devices in pocl beside itself, and for its built-in functions in
# ../../share/pocl.
cp -r "$(dirname "$pocl")/pocl" "$folder/pocl"
share=$folder/../../share
mkdir -p "$share"
cp -rL /usr/share/pocl "$share/pocl"
for file in "$share"/pocl/kernel-*.bc; do
    case $file in *-sse2.bc | *-avx2.bc | *-avx512.bc) ;; *) rm -f "$file" ;; esac
done

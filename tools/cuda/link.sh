#!/bin/bash
# Links the libraries that CUDA programs load, of what cargo built:
#
#   tools/cuda/link.sh FOLDER [PART...]      FOLDER = target/debug or target/release; the libraries come to FOLDER/cuda
#
# Parts are runtime, patch and names (all, if none is given):
#
#   libcudart.so.12, libcudart.so.13   NVIDIA's names and symbol versions, of libpenstock_cudart.a and the lists of symbols beside this script
#   libcuda.so.1, libnvidia-ml.so.1    libpenstock_cuda.so and libpenstock_nvml.so under the names that programs ask for
#   libpenstock_cudapatch.so           for programs with the runtime inside or NVRTC, of libpenstock_cuda_patch.a
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: link.sh FOLDER [PART...]}
shift
out=$folder/cuda
work=$out/.link
mkdir -p "$work"
cc=${CC:-cc}
# What a static library of Rust needs of the system, and options for all: nothing is found by chance of the loading order, and nothing goes
# away while functions of it may still be called.
system=(-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc)
options=(-shared -fPIC -Wl,--gc-sections -Wl,-Bsymbolic -Wl,-z,nodelete -Wl,-z,now -Wl,-z,relro -Wl,-z,defs)

# A script that exports the symbols of a list and nothing else: version_script NODE LIST
version_script() {
    echo "$1 { global:"
    sed 's/$/;/' "$2"
    echo "local: *; };"
}

# Newer than what it is made of: fresh TARGET SOURCE...
fresh() {
    local target=$1 source
    [ -e "$target" ] || return 1
    shift
    for source in "$@"; do [ "$target" -nt "$source" ] || return 1; done
}

# Whoever has a library open keeps the old file: links in a file of another name, and renames it.
runtime() {
    local major=$1 name=libcudart.so.$1
    fresh "$out/$name" "$folder/libpenstock_cudart.a" "$here/cudart-$major.symbols" "$here/link.sh" && return 0
    version_script "$name" "$here/cudart-$major.symbols" >"$work/cudart-$major.map"
    printf 'const int penstock_cudart_major = %s;\n' "$major" >"$work/major-$major.c"
    "$cc" -O2 -fPIC -c -o "$work/major-$major.o" "$work/major-$major.c"
    "$cc" "${options[@]}" -Wl,-soname,"$name" -Wl,--version-script,"$work/cudart-$major.map" -o "$work/$name" \
        "$work/major-$major.o" -Wl,--whole-archive "$folder/libpenstock_cudart.a" -Wl,--no-whole-archive "${system[@]}"
    mv -f "$work/$name" "$out/$name"
}

patch() {
    local name=libpenstock_cudapatch.so archive=$folder/libpenstock_cuda_patch.a
    fresh "$out/$name" "$archive" "$here/patch.c" "$here/link.sh" && return 0
    echo '{ global: dlopen; nvrtcGetCUBIN; nvrtcGetCUBINSize; local: *; };' >"$work/patch.map"
    "$cc" -O2 -fPIC -c -o "$work/patch.o" "$here/patch.c"
    "$cc" "${options[@]}" -Wl,-soname,"$name" -Wl,--version-script,"$work/patch.map" -o "$work/$name" \
        "$work/patch.o" "$archive" "${system[@]}"
    mv -f "$work/$name" "$out/$name"
}

# renamed SOURCE NAME
renamed() {
    fresh "$out/$2" "$folder/$1" && return 0
    cp -f "$folder/$1" "$work/$2"
    mv -f "$work/$2" "$out/$2"
}

[ $# -gt 0 ] || set -- runtime patch names
for part in "$@"; do
    case $part in
        runtime) runtime 12 && runtime 13 ;;
        patch) patch ;;
        names)
            renamed libpenstock_cuda.so libcuda.so.1
            renamed libpenstock_nvml.so libnvidia-ml.so.1 ;;
        *) echo "no such part: $part" >&2; exit 2 ;;
    esac
done

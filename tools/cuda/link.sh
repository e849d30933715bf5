#!/bin/bash
# Links the libraries that CUDA programs load, from the libraries that cargo built:
#
#   tools/cuda/link.sh FOLDER [PART...]
#
# FOLDER is target/debug or target/release; the libraries go to FOLDER/cuda. Parts are runtime,
# libraries, patch and names (default: all):
#
#   libcudart.so.12, libcudart.so.13   from libpenstock_cudart.a, with NVIDIA's names and the symbol
#                                      versions listed beside this script
#   libcublas.so.12 and .13, libcublasLt.so.12 and .13, libcufft.so.11 and .12
#                                      from libpenstock_cudalib.a, in the same way. A symbol that no
#                                      function of the archive has gets a function that names itself
#                                      once on standard error, and returns the library's code for
#                                      what is not supported
#   libcuda.so.1, libnvidia-ml.so.1    libpenstock_cuda.so and libpenstock_nvml.so under these names
#   libcuda.so, libnvidia-ml.so        links to them, for programs that open these names. Links,
#                                      because a second file would be a second library
#   libpenstock_cudapatch.so           from libpenstock_cuda_patch.a, for programs with the runtime
#                                      linked in or with NVRTC
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: link.sh FOLDER [PART...]}
shift
out=$folder/cuda
work=$out/.link
mkdir -p "$work"
cc=${CC:-cc}
# Libraries that a static Rust library needs, and options for all libraries: symbols do not depend
# on the load order, and no library is unloaded while its functions may still be called.
system=(-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc)
options=(-shared -fPIC -Wl,--gc-sections -Wl,-Bsymbolic -Wl,-z,nodelete -Wl,-z,now -Wl,-z,relro -Wl,-z,defs)

# version_script NODE LIST: prints a linker script that exports only the symbols of a list.
version_script() {
    echo "$1 { global:"
    sed 's/$/;/' "$2"
    echo "local: *; };"
}

# fresh TARGET SOURCE...: whether TARGET is newer than all its sources.
fresh() {
    local target=$1 source
    [ -e "$target" ] || return 1
    shift
    for source in "$@"; do [ "$target" -nt "$source" ] || return 1; done
}

# Links to a file of another name and renames it, so that processes that have the library open keep
# the old file.
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

# library NAME MAJOR VERSION UNSUPPORTED: one of CUDA's libraries. VERSION is the number that it
# reports, and UNSUPPORTED its code for what is not supported. The library looks for the driver in
# its own folder, too.
library() {
    local name=lib$1.so.$2 list=$here/$1-$2.symbols archive=$folder/libpenstock_cudalib.a
    fresh "$out/$name" "$archive" "$list" "$here/link.sh" && return 0
    version_script "$name" "$list" >"$work/$1-$2.map"
    # A function of the archive replaces the weak one of its name.
    {
        printf 'const int penstock_cudalib_version = %s;\n' "$3"
        echo 'void penstock_cudalib_unserved(const char *name, int *said);'
        echo '#define UNSERVED(name) __attribute__((weak)) int name(void) \'
        echo '    { static int said; penstock_cudalib_unserved(#name, &said); return '"$4"'; }'
        sed 's/.*/UNSERVED(&)/' "$list"
    } >"$work/$1-$2.c"
    "$cc" -O2 -fPIC -fno-builtin -ffunction-sections -c -o "$work/$1-$2.o" "$work/$1-$2.c"
    "$cc" "${options[@]}" -Wl,-soname,"$name" -Wl,-rpath,'$ORIGIN' \
        -Wl,--version-script,"$work/$1-$2.map" -o "$work/$name" "$work/$1-$2.o" \
        -Wl,--whole-archive "$archive" -Wl,--no-whole-archive "${system[@]}"
    mv -f "$work/$name" "$out/$name"
}

# The versions are those of the libraries from which the lists of symbols were taken.
libraries() {
    library cublas 12 120903 15
    library cublas 13 131000 15
    library cublasLt 12 120903 15
    library cublasLt 13 131000 15
    library cufft 11 11401 16
    library cufft 12 12500 16
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
    ln -sfn "$2" "$out/${2%.1}"
    fresh "$out/$2" "$folder/$1" && return 0
    cp -f "$folder/$1" "$work/$2"
    mv -f "$work/$2" "$out/$2"
}

[ $# -gt 0 ] || set -- runtime libraries patch names
for part in "$@"; do
    case $part in
        runtime) runtime 12 && runtime 13 ;;
        libraries) libraries ;;
        patch) patch ;;
        names)
            renamed libpenstock_cuda.so libcuda.so.1
            renamed libpenstock_nvml.so libnvidia-ml.so.1 ;;
        *) echo "no such part: $part" >&2; exit 2 ;;
    esac
done

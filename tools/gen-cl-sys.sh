#!/bin/sh
# Generates crates/base/cl-sys/src/generated.rs from the OpenCL headers.
#
# Needs opencl-headers (tried with Debian's 3.0~2023.02.06), libclang, bindgen (`cargo install
# bindgen-cli`; tried with 0.73.2), rustfmt and perl.
#
# Usage: tools/gen-cl-sys.sh [FILE]. BINDGEN names another bindgen; CL_HEADERS names a folder other
# than /usr/include.
set -eu
cd "$(dirname "$0")/.."
out=${1:-crates/base/cl-sys/src/generated.rs}
bindgen=${BINDGEN:-bindgen}
headers=${CL_HEADERS:-/usr/include}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/all.h" <<'C'
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_ext_intel.h>
#include <CL/cl_icd.h>
C

# The vector types have SIMD members whose layout bindgen gets wrong. No function of the API takes
# one. Functions are left out, because the loader is found at run time and nothing links to it.
# Their types are the cl_api_* pointers. The limits of C's arithmetic types (CL_INT_MAX, CL_M_PI,
# ...) matter only to kernels.
"$bindgen" "$work/all.h" --output "$work/raw.rs" \
    --ignore-functions --no-layout-tests --no-doc-comments --no-prepend-enum-name --rust-target 1.85 --rust-edition 2024 \
    --allowlist-type '_?cl_.*' --allowlist-type 'cl[A-Z].*_fn' --allowlist-var 'CL_.*' \
    --blocklist-type '_?_?cl_(u?char|u?short|u?int|u?long|half|float|double)(2|3|4|8|16).*' \
    --blocklist-type 'cl_d3d.*|cl_dx9.*|_?_?cl_(float4|int4).*' \
    --blocklist-item 'CL_(HALF|FLT|DBL|M|CHAR|SCHAR|UCHAR|SHRT|USHRT|INT|UINT|LONG|ULONG)_(?:BIT|MIN|MAX|DIG|MANT_DIG|MAX_10_EXP|MAX_EXP|MIN_10_EXP|MIN_EXP|RADIX|EPSILON|E|LOG.*|LN.*|PI.*|[12]_.*|SQRT.*)(_F)?' \
    --blocklist-item 'CL_(HAS_.*|MAXFLOAT|HUGE_VALF?|NAN|INFINITY|USE_DEPRECATED_.*|TARGET_OPENCL_VERSION|.*_EXTENSION_NAME)' \
    -- -I"$headers"

# C's macros have no types. Constants get the type of the API that takes them, so that Rust needs no
# casts.
perl -pe '
    sub type_of {
        my ($n) = @_;
        return "cl_int" if $n =~ /^CL_(SUCCESS|COMPLETE|RUNNING|SUBMITTED|QUEUED|BUILD_(SUCCESS|NONE|ERROR|IN_PROGRESS))$/;
        return "cl_device_type" if $n =~ /^CL_DEVICE_TYPE_/;
        return "cl_command_queue_properties" if $n =~ /^CL_QUEUE_(OUT_OF_ORDER_EXEC_MODE_ENABLE|PROFILING_ENABLE|ON_DEVICE|ON_DEVICE_DEFAULT)$/;
        return "cl_mem_flags" if $n =~ /^CL_MEM_(READ_WRITE|WRITE_ONLY|READ_ONLY|USE_HOST_PTR|ALLOC_HOST_PTR|COPY_HOST_PTR|HOST_WRITE_ONLY|HOST_READ_ONLY|HOST_NO_ACCESS|SVM_FINE_GRAIN_BUFFER|SVM_ATOMICS|KERNEL_READ_AND_WRITE)$/;
        return "cl_mem_migration_flags" if $n =~ /^CL_MIGRATE_MEM_OBJECT_/;
        return "cl_map_flags" if $n =~ /^CL_MAP_(READ|WRITE|WRITE_INVALIDATE_REGION)$/;
        return "cl_device_fp_config" if $n =~ /^CL_FP_/;
        return "cl_device_exec_capabilities" if $n =~ /^CL_EXEC_(KERNEL|NATIVE_KERNEL)$/;
        return "cl_device_svm_capabilities" if $n =~ /^CL_DEVICE_SVM_(COARSE|FINE|ATOMICS)/;
        return "cl_device_affinity_domain" if $n =~ /^CL_DEVICE_AFFINITY_DOMAIN_/;
        return "cl_device_atomic_capabilities" if $n =~ /^CL_DEVICE_ATOMIC_(ORDER|SCOPE)_/;
        return "cl_device_device_enqueue_capabilities" if $n =~ /^CL_DEVICE_QUEUE_(SUPPORTED|REPLACEABLE_DEFAULT)$/;
        return "cl_kernel_arg_type_qualifier" if $n =~ /^CL_KERNEL_ARG_TYPE_(NONE|CONST|RESTRICT|VOLATILE|PIPE)$/;
        return "cl_device_partition_property" if $n =~ /^CL_DEVICE_PARTITION_(EQUALLY|BY_COUNTS|BY_COUNTS_LIST_END|BY_AFFINITY_DOMAIN)$/;
        return undef;
    }
    if (/^pub const (CL_\w+): (u32|i32|u64)/) { my $t = type_of($1); s/: (u32|i32|u64)/: $t/ if defined $t; }
' "$work/raw.rs" > "$work/typed.rs"

# Name and first version of each core function, from the declarations in cl.h. Deprecated functions
# are marked with the version that ended them; all of them are of 1.0.
perl -0777 -ne '
    s{/\*.*?\*/}{}gs;
    while (/\b(cl[A-Z]\w+)\s*\((?:[^;]*?)\)\s*CL_(?:API|EXT)_SUFFIX__VERSION_(\d)_(\d)(_DEPRECATED)?\s*;/g) {
        my $since = $4 ? "1, 0" : "$2, $3";
        print "    (\"$1\", ($since)),\n" unless $seen{$1}++;
    }
' "$headers/CL/cl.h" > "$work/functions"

# Number and name of each status. The headers give a number of the core to a status first, and to
# other things (states of builds, list ends of extensions) later.
perl -ne '
    next unless /^pub const (CL_\w+): (?:i32|cl_int) = (-\d+|0);/;
    print "    ($2, \"$1\"),\n" unless $seen{$2}++;
' "$work/typed.rs" > "$work/statuses"

# The functions of the ICD loader's dispatch table, in its order.
perl -ne '
    $in = 1 if /^pub struct _cl_icd_dispatch \{/;
    print "    \"$1\",\n" if $in && /^    pub (\w+):/;
    $in = 0 if /^\}/;
' "$work/typed.rs" > "$work/slots"

{
    echo '// Made by tools/gen-cl-sys.sh from the Khronos OpenCL headers (Apache-2.0). Do not edit.'
    echo
    cat "$work/typed.rs"
    echo
    echo "/// Name and first version of each function of OpenCL's core."
    echo 'pub const CORE_FUNCTIONS: &[(&str, (u8, u8))] = &['
    cat "$work/functions"
    echo '];'
    echo
    echo "/// Number and name of each status of the core and of extensions."
    echo 'pub const STATUS_NAMES: &[(cl_int, &str)] = &['
    cat "$work/statuses"
    echo '];'
    echo
    echo "/// Name of the function in each slot of the dispatch table."
    echo 'pub const SLOT_NAMES: &[&str] = &['
    cat "$work/slots"
    echo '];'
} > "$work/generated.rs"
rustfmt --edition 2024 --config-path rustfmt.toml "$work/generated.rs"
mv "$work/generated.rs" "$out"

#!/bin/bash
# Shows that the GPU kit works on a machine that has nothing of ours, without a GPU.
#
#   tests/gpu-kit/run.sh ARCHIVE [--minutes N]
#
# The kit runs in an empty root without a network: Debian's from mmdebstrap if KIT_DEBIAN names a
# release, or one that bubblewrap makes of this host's programs and libraries, without those that
# the kit brings. In the first run, the driver is the stand-in of tests/cuda/native.sh. In the
# second run it is Penstock's own libcuda.so.1 over a daemon with PoCL ("the chain"). Each step must
# run or say what it lacks, in its time, and works.py says what must work.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
archive=$(realpath "${1:?usage: run.sh ARCHIVE [--minutes N]}")
minutes=8
[ "${2:-}" = --minutes ] && minutes=$3
[ "$minutes" -gt 0 ] || exit 2
bytes_max=$((48 << 20))
work=$(mktemp -d "${TMPDIR:-/tmp}/gpu-kit-test.XXXXXX")
daemon=
trap '[ -z "$daemon" ] || kill "$daemon"; rm -rf "$work"' EXIT
failed=0

report() { printf '%-4s gpu-kit/%-12s %s\n' "$1" "$2" "$3"; [ "$1" = ok ] || failed=1; }

command -v bwrap >/dev/null || { echo "SKIPPED: no bubblewrap"; exit 77; }
bytes=$(stat -c %s "$archive")
if [ "$bytes" -le "$bytes_max" ]; then
    report ok size "$((bytes / 1048576)) MiB"
else
    report FAIL size "$bytes bytes"
fi
mkdir -p "$work"/{k,driver,root,chain,standin,vendors,none}
tar -C "$work/k" -xf "$archive" || exit 1
kit=$work/k/gpu-kit
gcc -O2 -fPIC -shared -DNEWER "-DMEMORY_BYTES=(2048ull << 20)" -o "$work/driver/libcuda.so.1" \
    "$root/crates/node/device/tests/cuda_standin.c" -lpthread || exit 1

# The root: Debian's, or this host's loader, C libraries, shell and Python.
if command -v mmdebstrap >/dev/null && [ -n "${KIT_DEBIAN:-}" ]; then
    mmdebstrap --variant=minbase --include=python3,binutils "$KIT_DEBIAN" "$work/root" || exit 1
    view=(--ro-bind "$work/root" /)
else
    view=(--tmpfs /)
    for folder in /usr /bin /sbin /lib /lib64; do
        [ -e "$folder" ] && view+=(--ro-bind "$(realpath "$folder")" "$folder")
    done
    # Without the libraries that the kit brings.
    libraries=/usr/lib/x86_64-linux-gnu
    for folder in /usr/share/pocl "$libraries/pocl" /usr/lib/llvm-*; do
        [ -d "$folder" ] && view+=(--tmpfs "$folder")
    done
    for library in "$libraries"/lib{OpenCL,pocl,LLVM,clang,hwloc,cuda,nvidia}*.so*; do
        [ -f "$library" ] && [ ! -L "$library" ] && view+=(--ro-bind /dev/null "$library")
    done
fi

# in_root COMMAND...: runs a command in the empty root.
in_root() {
    local places=(--proc /proc --dev /dev --ro-bind /sys /sys --tmpfs /tmp)
    places+=(--bind "$work" "$work" --chdir "$work")
    local clean=(--unshare-net --clearenv --setenv PATH /usr/bin:/bin --setenv HOME "$work")
    timeout --kill-after=10 $((60 * minutes * 2 + 120)) bwrap "${view[@]}" "${places[@]}" \
        "${clean[@]}" "$@"
}

# try NAME OPTIONS...: one run of the kit. It must not outlast its time, no step may fall over, and
# what needs no driver of NVIDIA's must work.
try() {
    local name=$1 began=$SECONDS took lost
    shift
    in_root python3 "$kit/run" --minutes "$minutes" --output "$work/$name" "$@" \
        >"$work/$name.log" 2>&1
    took=$((SECONDS - began))
    lost=$(cat "$work/$name.log" "$work/$name/logs.txt" |
        grep -c 'the step did not end\|fault of the step')
    if [ "$took" -gt $((60 * minutes + 30)) ] || [ "$lost" -gt 0 ] ||
        [ ! -s "$work/$name/report.json" ]; then
        report FAIL "$name" "$took s, $lost steps that fell over"
        tail -n 30 "$work/$name.log" | sed 's/^/        | /'
    elif ! python3 "$here/works.py" "$work/$name/report.json"; then
        report FAIL "$name" "$took s"
        tail -n 30 "$work/$name.log" | cut -c 1-200 | sed 's/^/        | /'
        tail -n 5 "$work/second.log" 2>/dev/null
    else
        report ok "$name" "$took s: $(grep -c '^\[' "$work/$name.log") steps"
    fi
}

try standin --driver "$work/driver/libcuda.so.1" --gpu-name Stand-in
echo "$kit/lib/pocl/libpocl.so.2" >"$work/vendors/pocl.icd"
in_root env OCL_ICD_VENDORS="$work/vendors" POCL_DEVICES=pthread PENSTOCK_LIBCUDA=/none \
    LD_LIBRARY_PATH="$kit/lib/pocl" PENSTOCK_LIBOPENCL="$kit/lib/libOpenCL.so.1" \
    "$kit/bin/penstock" serve --listen "unix:$work/chain.sock" >"$work/second.log" 2>&1 &
daemon=$!
try chain --driver "$kit/lib/cuda/libcuda.so.1" --driver-nodes "unix:$work/chain.sock"
exit "$failed"

#!/usr/bin/env bash
# Runs programs in containers that have the pool, and nothing else of the host, through the options
# that `penstock container` prints.
#
#   run.sh [ENGINE...]     ENGINE: bubblewrap podman cdi
#
# An engine that this host lacks, or that cannot run here, is skipped with the reason. Podman also
# stands for Docker, whose options are the same. PENSTOCK_BIN is the folder of the build.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../tools/pool.sh"
. "$here/../tally.sh"
case ${1-} in
    -*) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; [ "$1" = --help ] && exit 0 || exit 2 ;;
esac
engines=("$@")
[ $# -gt 0 ] || engines=(bubblewrap podman cdi)
programs=(clinfo matmul vectorAdd vectorAdd-static nothing_else no_orders daemon_again)

# Short, because the path of a socket has at most 107 bytes.
out=$(mktemp -d /tmp/penstock-containers.XXXXXX)
daemon=
stop_daemon() { [ -z "$daemon" ] || { kill "$daemon"; wait "$daemon"; } 2>/dev/null; daemon=; }
trap 'stop_daemon; rm -rf "$out"' EXIT
trap 'exit 130' INT TERM

tally_plan containers $((${#engines[@]} * ${#programs[@]}))

# An installation: the options name what `make install` lays out.
prefix=$out/prefix
if ! make -s -C "$POOL_ROOT" --no-print-directory install PREFIX="$prefix" BIN="$PENSTOCK_BIN" \
    PROGRAMS="$PENSTOCK_PROGRAMS" >"$out/install.log" 2>&1; then
    cat "$out/install.log"
    tally_begin containers/install
    report FAIL "make install failed"
    tally_end
fi
# CUDA programs need nvcc here, and only their libraries in the container.
has_cuda=
if [ -x "$POOL_ROOT/.venv-cuda/bin/python" ]; then
    if make -C "$POOL_ROOT/examples/cuda" --no-print-directory OUT="$out/cuda" \
        "$out/cuda/vectorAdd" "$out/cuda/vectorAdd-static" >"$out/cuda.log" 2>&1; then
        has_cuda=yes
    else
        cat "$out/cuda.log"
        tally_begin containers/vectorAdd
        report FAIL "it does not build"
    fi
fi

socket=$out/pool/penstockd.sock
mkdir "$out/pool" "$out/root"
start_daemon() {
    POCL_DEVICES=pthread "$prefix/bin/penstock" serve --listen "unix:$socket" \
        >"$out/serve" 2>>"$out/daemon.log" &
    daemon=$!
    wait_until grep -qs listening "$out/serve" && return
    echo "penstock serve did not start:" >&2
    tail -n 20 "$out/daemon.log" >&2
    exit 1
}
start_daemon

# The image has the programs of this host, and no file of Penstock. Podman and bubblewrap make the
# mount points in it.
image=$out/root
mkdir -p "$image"/{usr,proc,dev,tmp,run,etc,var,programs}
for link in bin lib lib64 sbin; do ln -s "usr/$link" "$image/$link"; done

# options WORD...: prints what `penstock container` gives for this socket.
options() { "$prefix/bin/penstock" container --socket "$socket" "${more[@]}" "$@"; }

# in_container ENGINE WORD...: runs a command in a container. The time limit ends one that hangs.
in_container() {
    local engine=$1
    shift
    local podman=(podman --log-level=error --runtime "${runtime:-crun}" run --rm --network=none
        --ulimit nofile=1024:1024 --ulimit nproc=4096:4096
        --mount type=bind,source=/usr,target=/usr,readonly
        --mount "type=bind,source=$out/programs,target=/programs,readonly")
    # The shell splits the options into words.
    case $engine in
        bubblewrap)
            limited "$(patience)" bwrap --unshare-all --die-with-parent --new-session --clearenv \
                --setenv PATH /usr/bin:/bin --bind "$image" / --ro-bind /usr /usr --proc /proc \
                --dev /dev --tmpfs /tmp --ro-bind "$out/programs" /programs \
                $(options bubblewrap) "$@" ;;
        podman) limited "$(patience)" "${podman[@]}" $(options podman) --rootfs "$image" "$@" ;;
        cdi)
            options cdi >"$cdi_folder/$cdi_file" || return
            podman+=(--device "penstock/pool=host" --rootfs "$image")
            limited "$(patience)" "${podman[@]}" "$@" ;;
    esac
}
# Podman 4.3 reads only these two folders. The name must not meet that of an administrator.
cdi_folder=/var/run/cdi cdi_file=penstock-test-$$.json
trap 'stop_daemon; rm -rf "$out" "${cdi_folder:?}/${cdi_file:?}"' EXIT
more=()

mkdir "$out/programs"
cp "$PENSTOCK_PROGRAMS/matmul" "$out/programs"
[ -z "$has_cuda" ] || cp "$out/cuda/vectorAdd" "$out/cuda/vectorAdd-static" "$out/programs"

# Whether an engine runs a program at all here. Prints the reason if it does not.
can_run() {
    local engine=$1 said
    case $engine in
        bubblewrap) command -v bwrap >/dev/null || { echo "bwrap is not installed"; return 1; } ;;
        *) command -v podman >/dev/null || { echo "podman is not installed"; return 1; } ;;
    esac
    if [ "$engine" = bubblewrap ]; then
        said=$(in_container bubblewrap /bin/true 2>&1) && return
    else
        if [ "$engine" = cdi ] && ! mkdir -p "$cdi_folder" 2>/dev/null; then
            echo "only root can write to $cdi_folder"
            return 1
        fi
        # crun refuses hosts that have both versions of control groups; runc does not.
        for runtime in crun runc; do
            said=$(in_container podman /bin/true 2>&1) && return
        done
    fi
    echo "$engine does not run a program here: $(tail -n 1 <<<"$said")"
    return 1
}

# What a container must not see of the host, and what it must see, as a script for its shell.
nothing_else='
bad=
[ "$(ls /run/penstock)" = penstockd.sock ] || bad="$bad /run/penstock"
for path in '$POOL_ROOT' /dev/dri /dev/kvm /dev/nvidiactl '$HOME/.config'; do
    [ ! -e "$path" ] || bad="$bad $path"
done
[ "$(cat /sys/class/net/*/operstate 2>/dev/null | grep -cx up)" = 0 ] || bad="$bad network"
for path in lib/penstock/x lib/penstock/libpenstock_opencl.so bin/penstock; do
    path='$prefix'/$path
    ! touch "$path" 2>/dev/null || bad="$bad write:$path"
done
! rm -f /run/penstock/penstockd.sock 2>/dev/null || bad="$bad rm"
[ -z "$bad" ] && echo nothing else || echo "seen:$bad"'

# says PATTERN WORD...: runs a command in a container of $engine; a line of its output fits PATTERN.
says() {
    local pattern=$1
    shift
    in_container "$engine" "$@" >"$out/said" 2>&1 && grep -q "$pattern" "$out/said"
}

# judge PROGRAM: runs one program in a container of $engine, and checks what it says.
judge() {
    case $1 in
        clinfo) says '^Platform #0: Penstock' clinfo -l ;;
        matmul) says '^product: right' /programs/matmul --n 256 --slice 128 ;;
        vectorAdd) says '^Test passed' /programs/vectorAdd --small ;;
        # `penstock run` replaces the runtime that is linked into a program.
        vectorAdd-static)
            says '^Test passed' \
                "$prefix/bin/penstock" run --no-local -- /programs/vectorAdd-static --small ;;
        no_orders) no_orders ;;
        nothing_else) says '^nothing else$' /bin/sh -c "$nothing_else" ;;
        daemon_again)
            more=(--folder)
            daemon_again
            local code=$?
            more=()
            return $code ;;
    esac
}

# The daemon obeys its user, and not in a container.
no_orders() {
    local penstock=$prefix/bin/penstock
    says 'does not obey' "$penstock" drain unix:/run/penstock/penstockd.sock && return 1
    grep -q 'does not obey' "$out/said" && "$penstock" drain --undo "unix:$socket" >"$out/said" 2>&1
}

# A container that sees the folder of the socket finds a daemon that starts anew while it runs.
daemon_again() {
    local job twice='clinfo -l
        while [ ! -e /programs/go ]; do sleep 0.1; done
        clinfo -l'
    rm -f "$out/programs/go"
    in_container "$engine" /bin/sh -c "$twice" >"$out/said" 2>&1 &
    job=$!
    wait_until grep -q Device "$out/said"
    stop_daemon
    start_daemon
    touch "$out/programs/go"
    wait $job && [ "$(grep -c '^Platform #0: Penstock' "$out/said")" = 2 ]
}

for engine in "${engines[@]}"; do
    if ! reason=$(can_run "$engine"); then
        for program in "${programs[@]}"; do
            tally_begin "containers/$program-$engine"
            # Podman needs rights that many hosts do not give.
            if is_required bubblewrap && [ "$engine" = bubblewrap ]; then
                report FAIL "$reason"
            else
                report skip "SKIPPED: $reason"
            fi
        done
        continue
    fi
    # `can_run` ran in a process of its own, so its choice is made again.
    if [ "$engine" != bubblewrap ]; then
        for runtime in crun runc; do in_container podman /bin/true >/dev/null 2>&1 && break; done
    fi
    for program in "${programs[@]}"; do
        tally_begin "containers/$program-$engine"
        if [[ $program = vectorAdd* && -z $has_cuda ]]; then
            report skip "SKIPPED: no nvcc: tools/setup.sh cuda"
        elif judge "$program"; then
            report ok ""
        else
            report FAIL "see the lines below"
            tail -n 20 "$out/said" "$out/daemon.log" | sed 's/^/        | /'
        fi
    done
done
tally_end

#!/usr/bin/env bash
# Runs libWater programs in one process or on the daemons of a pool, without MPI: Listing 1, the six
# applications with --verify, and on two nodes also nodes.c, once with the second daemon killed
# during its work.
#
#   run.sh [--on local|unix|two|hosts] [-- OPTIONS...]      default: two
#
#   --on KIND      local: the process's own OpenCL; unix: one daemon; two: two daemons on this host;
#                  hosts: two daemons in network namespaces of this host (needs root and iproute2),
#                  the second of which loses its network at the end
#   -- OPTIONS...  for the applications, as in: -- --repeat 3; default: small sizes
#
# PENSTOCK_BIN is the folder of penstock and libwater.so (default: target/release). PROGRAM_S is the
# time limit of one program.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../tools/pool.sh"
. "$here/../tally.sh"
: "${PROGRAM_S:=$(patience 5)}"

kind=two options=()
while [ $# -gt 0 ]; do
    case $1 in
        --on) kind=${2:?--on wants local, unix, two or hosts}; shift 2 ;;
        --) shift; options=("$@"); break ;;
        *) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; [ "$1" = --help ] && exit 0 || exit 2 ;;
    esac
done
[ -e "$PENSTOCK_BIN/libwater.so" ] || { echo "no libwater.so in $PENSTOCK_BIN: run \`make build\` first" >&2; exit 1; }

out=$(mktemp -d)
finish() {
    pool_stop
    if [ "$kind" = hosts ]; then
        for node in 0 1; do ip netns delete "$(host $node)" 2>/dev/null; done
    fi
    rm -rf "$out"
}
trap finish EXIT
export LD_LIBRARY_PATH=$PENSTOCK_BIN${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

compile() {
    "${CC:-cc}" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -g -I"$here/../../crates/faces/water/include" -o "$out/$1" "$here/$1.c" \
        -L"$PENSTOCK_BIN" -lwater
}
compile listing1 && compile nodes || exit 1
cp "$here/kernel.cl" "$out"
make -s -C "$here/../../examples/libwater" water OUT="$out" LIBWATER="$PENSTOCK_BIN" || exit 1
cd "$out" || exit 1

# Prints the name of a host, which is also that of its namespace.
host() { echo "wtr-$$-$1"; }
on_host() { # NODE COMMAND...
    # shellcheck disable=SC2016 # the inner shell expands
    exec ip netns exec "$(host "$1")" unshare -u sh -c 'hostname "$0"; exec "$@"' "$(host "$1")" "${@:2}"
}

start_hosts() {
    [ "$(id -u)" = 0 ] && command -v ip >/dev/null || { echo "SKIPPED: network namespaces need root and iproute2"; exit 77; }
    local node address
    pool_start local
    export PENSTOCK_KEY=$POOL_DIR/key
    "$PENSTOCK_BIN/penstock" key --create >/dev/null || exit 1
    for node in 0 1; do
        ip netns add "$(host $node)" || { echo "SKIPPED: this kernel makes no network namespaces"; exit 77; }
        ip -n "$(host $node)" link set lo up
    done
    ip -n "$(host 0)" link add eth0 type veth peer name eth0 netns "$(host 1)" || exit 1
    for node in 0 1; do
        address=10.79.0.$((node + 1))
        ip -n "$(host $node)" addr add $address/24 dev eth0
        ip -n "$(host $node)" link set eth0 up
        (on_host $node env "XDG_CONFIG_HOME=$POOL_DIR/config$node" "$PENSTOCK_BIN/penstock" serve --listen tcp:$address:7367) >"$POOL_DIR/host$node.out" 2>"$POOL_DIR/host$node.log" &
        POOL_PIDS+=($!)
        wait_until grep -q '^listening on' "$POOL_DIR/host$node.out" || exit 1
        POOL_ENV+=("NODES_HOST_$node=$(host $node)")
    done
    POOL_ENV+=("PENSTOCK_NODES=tcp:10.79.0.1,tcp:10.79.0.2"
        "XDG_CONFIG_HOME=$POOL_DIR/config")
}

# Runs a command on the pool, from the first host if there are hosts.
on_pool() {
    if [ "$kind" = hosts ]; then
        (on_host 0 timeout --kill-after=5 "$PROGRAM_S" env "${POOL_ENV[@]}" "$@")
    else
        pool_run "$PROGRAM_S" "$@"
    fi
}

# Whether the program has met the other host over an encrypted link, although nothing asked for it:
# both have written each other down. The address of its own host is within the host, and plain.
encrypted_by_default() {
    local known=$POOL_DIR/config/penstock/known_nodes
    grep '^enrolled-' "$POOL_DIR/config1/penstock/authorized_clients" &&
        grep '^tcp:10.79.0.2:' "$known" && ! grep '^tcp:10.79.0.1:' "$known"
}

# Runs a test and reports its result.
check() {
    local text verdict=ok
    tally_begin "water/$1 $kind"
    shift
    text=$("$@" 2>&1) || verdict=FAIL
    report $verdict ""
    [ -z "$text" ] || sed -E 's/^ */        /' <<<"$text"
}

small_sizes() {
    case $1 in
        perlin_noise) echo --size 300 ;;
        nbody) echo --size 800 --steps 4 ;;
        knn) echo --size 3000 --queries 200 ;;
        floyd) echo --size 128 --block 8 ;;
        matrix_mul) echo --size 160 ;;
        lin_reg) echo --size 800 --points 1000 ;;
    esac
}

# The applications print their results and times. Their exit status says whether the result was
# right.
application() {
    local line
    line=$(on_pool "./$1-water" --verify --json "${@:2}") || { echo "$line"; return 1; }
    sed -nE 's/.*"devices": ([0-9]+).*"seconds": ([0-9.e-]+).*"verified": (true|false).*/\1 devices, \2 s, verified: \3/p' <<<"$line"
    [[ $line == *'"verified": true'* ]] || { echo "$line"; return 1; }
    [[ $nodes = 1 || $line == *'"devices": 2'* ]] || { echo "not on two devices: $line"; return 1; }
}

# Kills the second daemon, or cuts its host off, during the program's work.
loss() {
    local status line
    coproc PROGRAM { on_pool ./nodes loss 2>&1; }
    local pid=$PROGRAM_PID input=${PROGRAM[1]} output
    exec {output}<&"${PROGRAM[0]}"
    while read -r -t "$(patience)" line <&"$output" && [ "$line" != ready ]; do echo "$line"; done
    if [ "$kind" = hosts ]; then
        ip -n "$(host 1)" link set eth0 down
    else
        kill -9 "${POOL_PIDS[1]}"
    fi
    echo >&"$input"
    cat <&"$output"
    exec {output}<&-
    wait "$pid"
    status=$?
    return $status
}

case $kind in
    hosts) start_hosts ;;
    *) pool_start "$kind" || exit 1 ;;
esac
nodes=1
case $kind in
    two | hosts) nodes=2 ;;
    local) POOL_ENV+=(WTR_TRANSPORT=none "POCL_DEVICES=pthread pthread") ;;
esac
number=7
[ "$kind" != local ] || number=8
[ "$kind" != two ] || number=9
[ "$kind" != hosts ] || number=10
tally_plan water $number
check listing1 on_pool ./listing1 $nodes
for app in perlin_noise nbody knn floyd matrix_mul lin_reg; do
    sizes=("${options[@]}")
    [ ${#options[@]} -gt 0 ] || read -ra sizes <<<"$(small_sizes $app)"
    check "$app" application "$app" "${sizes[@]}"
done
[ "$kind" != local ] || check together on_pool ./nodes together
[ "$kind" != hosts ] || check encrypted encrypted_by_default
if [ $nodes = 2 ]; then
    check nodes on_pool ./nodes
    # Otherwise the shell would report its end.
    disown "${POOL_PIDS[1]}"
    check loss loss
fi
tally_end

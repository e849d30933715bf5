#!/bin/bash
# Tier B: nodes are network namespaces of this host with links of 1 Gbit/s; real Open MPI over real
# TCP, real bytes, wall clock. Only the times of kernels are modelled. Needs root, iproute2 and Open
# MPI.
#
#   tools/sim/emulate.sh NODES MODEL.json PROGRAM [ARGUMENTS...]
#
# The model should be of mode hollow or real. PROGRAM is built with libwater.so, as usual. Prints
# what the program prints. Exit status 77: skipped, and the last line on standard error says why.
set -euo pipefail
agent=0
if [ "${1:-}" = --agent ]; then
    # mpirun calls this script instead of ssh: --agent HOST COMMAND...
    agent=1
    shift
fi
here=$(cd "$(dirname "$0")" && pwd)
net=${PENSTOCK_EMULATION_NET:-10.77.0}
prefix=${PENSTOCK_EMULATION_PREFIX:-pse}
rate=${PENSTOCK_EMULATION_RATE:-1gbit}

# enter NODE COMMAND...: runs a command on that node, which also has its own host name. Nodes count
# from 0.
enter() {
    local node=$1
    shift
    # shellcheck disable=SC2016 # the inner shell expands
    exec ip netns exec "$prefix$node" unshare -u sh -c 'hostname "$0"; exec "$@"' "$prefix$node" "$@"
}

if [ $agent = 1 ]; then
    host=$1
    shift
    enter $((${host##*.} - 1)) sh -c "$*"
fi

skip() { echo "SKIPPED: $*" >&2; exit 77; }
[ $# -ge 3 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
nodes=$1 model=$(readlink -f "$2") program=$(readlink -f "$3")
shift 3
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip >/dev/null && command -v tc >/dev/null || skip "ip and tc are missing: install the Debian package iproute2"
command -v mpirun.openmpi >/dev/null || skip "mpirun.openmpi is missing: install the Debian package openmpi-bin"
{ [ "$nodes" -ge 1 ] && [ "$nodes" -le 8 ]; } || { echo "1 to 8 nodes: more do not fit one host in real time" >&2; exit 2; }

clean() {
    local node
    for node in $(seq 0 $((nodes - 1))); do ip netns delete "$prefix$node" 2>/dev/null || true; done
    ip netns delete "${prefix}s" 2>/dev/null || true
}
trap clean EXIT
clean
# The switch is a namespace with a bridge. A queue at each end of each cable limits the rate. Its
# buffer holds 2 ms at that rate (tbf needs at least rate / HZ, and HZ is 250 on most hosts).
# Packets wait up to 50 ms before they are dropped.
ip netns add "${prefix}s" || skip "this kernel makes no network namespaces"
ip -n "${prefix}s" link add br0 type bridge
ip -n "${prefix}s" link set br0 up
for node in $(seq 0 $((nodes - 1))); do
    ip netns add "$prefix$node"
    ip -n "$prefix$node" link set lo up
    ip -n "$prefix$node" link add eth0 type veth peer name "port$node" netns "${prefix}s"
    ip -n "${prefix}s" link set "port$node" master br0 up
    ip -n "$prefix$node" addr add "$net.$((node + 1))/24" dev eth0
    ip -n "$prefix$node" link set eth0 up
    tc -n "$prefix$node" qdisc add dev eth0 root tbf rate "$rate" burst 256kb latency 50ms || skip "this kernel has no tbf"
    tc -n "${prefix}s" qdisc add dev "port$node" root tbf rate "$rate" burst 256kb latency 50ms
done
hosts=
for node in $(seq 1 "$nodes"); do hosts+=${hosts:+,}$net.$node:1; done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PENSTOCK_EMULATION_NET=$net PENSTOCK_EMULATION_PREFIX=$prefix
(
    enter 0 mpirun.openmpi --host "$hosts" -n "$nodes" --map-by node --bind-to none \
        --mca plm_rsh_agent "$here/emulate.sh --agent" --mca plm_rsh_no_tree_spawn 1 --mca btl tcp,self --mca pml ob1 \
        --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca mpi_yield_when_idle 1 \
        -x WTR_SIM="$model" ${WTR_DCR:+-x WTR_DCR} ${WTR_MPI:+-x WTR_MPI} ${LD_LIBRARY_PATH:+-x LD_LIBRARY_PATH} "$program" "$@"
)

# Runs commands on a chosen pool. The test and benchmark scripts (bash) source this file.
#
#   pool_start KIND              starts the daemons of a pool and sets POOL_ENV (words NAME=VALUE
#                                for env); returns 77 if something that the pool needs is missing
#       local      no daemon
#       unix, tcp  one node
#       two        two nodes, both on Unix sockets
#       far        two nodes that reach each other only over TCP
#       encrypted  as far, with encrypted links, also between the nodes
#       apart      as two, but the nodes do not reach each other
#       mixed      one node with PoCL and Intel's runtime for CPUs
#       platforms  two nodes, one with PoCL and one with Intel's runtime
#   pool_run SECONDS COMMAND...  runs a command on the pool, with a time limit
#   is_required NEED             whether a test must fail that lacks NEED
#   pool_stop                    ends the daemons and removes their files
#   patience [TIMES]             prints the seconds after which something hangs (tests/patience.py)
#   wait_until COMMAND...        asks for a state until it is there; fails if it does not come
#
# PENSTOCK_BIN names the folder with penstock and libpenstock_opencl.so, PENSTOCK_PROGRAMS the
# folder with matmul and clbench.

POOL_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PENSTOCK_TARGET=$(realpath -m "${CARGO_TARGET_DIR:-$POOL_ROOT/target}")
PENSTOCK_BIN=${PENSTOCK_BIN:-$PENSTOCK_TARGET/release}
PENSTOCK_PROGRAMS=${PENSTOCK_PROGRAMS:-$PENSTOCK_TARGET/programs}
POOL_PIDS=()
POOL_ENV=()
POOL_DIR=

# is_required NEED: whether a test fails that lacks NEED. The needs are in
# crates/base/trial/src/skip.rs.
is_required() { case ,${PENSTOCK_TEST_REQUIRE:-}, in *,$1,*) true ;; *) false ;; esac; }

patience() { awk "BEGIN { printf \"%d\", 60 * ${PENSTOCK_TEST_SLOWNESS:-1} * ${1:-1} }"; }
wait_until() {
    local end=$((SECONDS + $(patience)))
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}

# Starts one daemon with the given arguments. Sets POOL_ADDRESS to the address it listens on.
pool_serve() {
    local log=$POOL_DIR/daemon-${#POOL_PIDS[@]}.log out=$POOL_DIR/daemon-${#POOL_PIDS[@]}.out pid
    env "${POOL_SERVE_ENV[@]}" "$PENSTOCK_BIN/penstock" serve "$@" >"$out" 2>"$log" &
    pid=$!
    POOL_PIDS+=("$pid")
    POOL_LOG=$log
    pool_told() { grep -qs '^listening on ' "$out" || ! kill -0 "$pid" 2>/dev/null; }
    wait_until pool_told
    POOL_ADDRESS=$(sed -n 's/^listening on //p' "$out" 2>/dev/null | head -n 1)
    [ -n "$POOL_ADDRESS" ] && return 0
    echo "penstock serve $* did not start; its log:" >&2
    tail -n 20 "$log" >&2
    return 1
}

# Makes the next daemons use the drivers of these ICD files, and the key if there is one.
pool_drivers() {
    local vendors=$POOL_DIR/drivers-${#POOL_PIDS[@]}
    mkdir "$vendors"
    cp "$@" "$vendors"
    POOL_SERVE_ENV=("OCL_ICD_VENDORS=$vendors" "OPENCL_VENDOR_PATH=$vendors")
    [ -e "$POOL_DIR/key" ] && POOL_SERVE_ENV+=("PENSTOCK_KEY=$POOL_DIR/key")
}

pool_start() {
    POOL_KIND=$1
    POOL_DIR=$(mktemp -d "${TMPDIR:-/tmp}/penstock-test.XXXXXX")
    POOL_SERVE_ENV=()
    POOL_ENV=()
    [ "$POOL_KIND" = local ] && return 0
    if [ ! -x "$PENSTOCK_BIN/penstock" ] || [ ! -e "$PENSTOCK_BIN/libpenstock_opencl.so" ]; then
        echo "no penstock in $PENSTOCK_BIN: run \`make build\` first" >&2
        return 1
    fi
    mkdir "$POOL_DIR/vendors"
    echo "$PENSTOCK_BIN/libpenstock_opencl.so" >"$POOL_DIR/vendors/penstock.icd"
    local nodes key=$POOL_DIR/key
    case $POOL_KIND in
        unix)
            pool_serve --listen "unix:$POOL_DIR/node.sock" || return 1
            nodes=$POOL_ADDRESS ;;
        mixed | platforms)
            local intel=$POOL_ROOT/.venv-cuda/vendors/intel.icd pocl=/etc/OpenCL/vendors/pocl.icd
            if [ ! -e "$intel" ] || [ ! -e "$pocl" ]; then
                echo "PoCL or Intel's runtime (tools/setup.sh cuda) is not installed" >&2
                is_required intel && return 1
                return 77
            fi
            if [ "$POOL_KIND" = mixed ]; then
                pool_drivers "$pocl" "$intel"
                pool_serve --listen "unix:$POOL_DIR/node.sock" || return 1
                nodes=$POOL_ADDRESS
            else
                PENSTOCK_KEY=$key "$PENSTOCK_BIN/penstock" key --create >/dev/null || return 1
                pool_drivers "$pocl"
                pool_serve --listen "unix:$POOL_DIR/node.sock" --listen tcp:127.0.0.1:0 || return 1
                nodes=unix:$POOL_DIR/node.sock
                pool_drivers "$intel"
                pool_serve --listen tcp:127.0.0.1:0 || return 1
                nodes=$nodes,$POOL_ADDRESS
            fi ;;
        tcp | two | far | encrypted | apart)
            PENSTOCK_KEY=$key "$PENSTOCK_BIN/penstock" key --create >/dev/null || return 1
            POOL_SERVE_ENV=("PENSTOCK_KEY=$key")
            # All have one folder of keys, as the nodes of one user have.
            [ "$POOL_KIND" = encrypted ] &&
                POOL_SERVE_ENV+=("PENSTOCK_ENCRYPTION=always" "XDG_CONFIG_HOME=$POOL_DIR")
            if [ "$POOL_KIND" = far ] || [ "$POOL_KIND" = encrypted ]; then
                # Two nodes that reach each other only over TCP, as on two hosts.
                pool_serve --listen tcp:127.0.0.1:0 || return 1
                nodes=$POOL_ADDRESS
                pool_serve --listen tcp:127.0.0.1:0 || return 1
                nodes=$nodes,$POOL_ADDRESS
            elif [ "$POOL_KIND" = tcp ]; then
                pool_serve --listen tcp:127.0.0.1:0 || return 1
                nodes=$POOL_ADDRESS
            else
                # Two nodes on one host. The workers of a client over TCP would share no memory.
                # "platforms" has a client on a Unix socket and one over TCP.
                pool_serve --listen "unix:$POOL_DIR/node.sock" --listen tcp:127.0.0.1:0 || return 1
                pool_serve --listen "unix:$POOL_DIR/other.sock" --listen tcp:127.0.0.1:0 || return 1
                nodes=unix:$POOL_DIR/node.sock,unix:$POOL_DIR/other.sock
            fi ;;
        *)
            echo "no such pool: $POOL_KIND (local, unix, tcp, two, far, encrypted, apart, mixed or platforms)" >&2
            return 1 ;;
    esac
    # Loaders older than ocl-icd 2.3 and some bundled ones read OPENCL_VENDOR_PATH.
    POOL_ENV=("OCL_ICD_VENDORS=$POOL_DIR/vendors" "OPENCL_VENDOR_PATH=$POOL_DIR/vendors" "PENSTOCK_NODES=$nodes")
    # No test is about a node that is late.
    POOL_ENV+=("PENSTOCK_TIMEOUT_MS=$(patience)000")
    [ -e "$key" ] && POOL_ENV+=("PENSTOCK_KEY=$key")
    [ "$POOL_KIND" = encrypted ] &&
        POOL_ENV+=("PENSTOCK_ENCRYPTION=always" "XDG_CONFIG_HOME=$POOL_DIR")
    # As "two", but the workers have no link: all data between the nodes passes through the client.
    [ "$POOL_KIND" = apart ] && POOL_ENV+=("PENSTOCK_PEERS=off")
    return 0
}

pool_run() {
    local limit=$1
    shift
    timeout --kill-after=5 "$limit" env "${POOL_ENV[@]}" "$@"
}

pool_stop() {
    local pid
    for pid in "${POOL_PIDS[@]}"; do kill "$pid" 2>/dev/null; done
    for pid in "${POOL_PIDS[@]}"; do wait "$pid" 2>/dev/null; done
    POOL_PIDS=()
    [ -n "$POOL_DIR" ] && rm -rf "$POOL_DIR"
    POOL_DIR=
}

# What each stage of tools/test.sh that needs programs runs, in the lane TEST_LANE. tools/test.sh
# sources this file, and gives it
#
#   runner SCRIPT...        runs a script that counts its cases itself (tests/tally.py)
#   step NAME COMMAND...    runs a command as one case
#
# docs/tests.md says what each stage proves. In the lane `perf`, only the stages of `perf_stages`
# have cases.
. "$(dirname "${BASH_SOURCE[0]}")/tally.sh"

# shellcheck disable=SC2034 # read by tools/test.sh
perf_stages=c,cuda,hostile,faults,load,ssh,bench
# by_lane TEST ALL: prints a number for this lane.
by_lane() { if [ "${TEST_LANE:-test}" = test ]; then echo "$1"; else echo "$2"; fi; }

multi=(multi_buffers multi_events multi_gates multi_host_memory multi_programs multi_views)
stage_c() {
    if runs perf; then
        runner tests/c/run.sh --on unix information
        return
    fi
    runner tests/c/run.sh --on unix
    # What depends on the transport.
    runner tests/c/run.sh --on tcp buffers kernels mapping rects host_memory svm
    runner tests/c/run.sh --on two "${multi[@]}" multi_choice multi_heaps multi_printing multi_taken
    # Heaps use other paths here: the proxy over TCP, and between two drivers.
    runner tests/c/run.sh --on far multi_heaps
    runner tests/c/run.sh --on mixed multi_heaps
    # Encrypted links to and between the nodes.
    runner tests/c/run.sh --on encrypted buffers mapping multi_buffers multi_heaps
    runner tests/c/run.sh --on platforms includes
    # Nodes that do not reach each other: the client relays.
    runner tests/c/run.sh --on apart multi_buffers multi_events multi_host_memory
    runs all || return 0
    # Without Penstock: the tests themselves.
    runner tests/c/run.sh --on local
    runner tests/c/run.sh --on tcp
    runner tests/c/run.sh --on two
    PENSTOCK_HEAP_PATH=proxy runner tests/c/run.sh --on two multi_heaps
    runner tests/c/run.sh --on encrypted kernels rects multi_events multi_programs
    runner tests/c/run.sh --on apart multi_gates multi_programs multi_views
}

# Random programs, the same in each run. `tests/model/run.sh --seed` searches from other seeds.
stage_model() {
    runs test || return 0
    local pool programs checked=(--shrink-seconds 10 --findings 3)
    programs=$(by_lane 40 400)
    step model/machine "$PENSTOCK_BIN/penstock" check --machine --programs "$(by_lane 20000 100000)"
    for pool in unix two tcp far apart mixed platforms; do
        step model/$pool tests/model/run.sh --on $pool --programs "$programs" "${checked[@]}"
    done
    for pool in unix two; do
        step model/cuda-$pool tests/model/run.sh --on $pool --cuda --programs "$programs" \
            "${checked[@]}"
    done
}

stage_water() {
    runs test || return 0
    step water/programs tests/water/programs.sh "$PENSTOCK_BIN"
    runner tests/water/run.sh --on two
    runner tests/water/ranks.sh --mpi openmpi --ranks "$(by_lane 2 2,4,8)"
    runner tests/water/ranks.sh --mpi mpich --ranks "$(by_lane 2 2,4)"
    runner tests/water/heaps.sh
    step water/simulated tools/sim/test.sh
    step water/python env PENSTOCK_WATER_LIBRARY="$PENSTOCK_BIN/libwater.so" \
        .venv/bin/python -m pytest -q -p no:cacheprovider python/tests
}

stage_cuda() {
    if runs perf; then
        runner tests/cuda/run.sh --on unix sharing
        return
    fi
    # Everything once. Over TCP, on two nodes and on another driver, only what depends on them.
    runner tests/cuda/run.sh --on unix
    runner tests/cuda/run.sh --on unix --device intel vectorAdd matrixMul-static copies atomics
    runner tests/cuda/run.sh --on tcp vectorAdd asyncAPI copies streams
    runner tests/cuda/run.sh --on two devices vectorAdd heaps
    runner tests/cuda/native.sh
    runs all || return 0
    runner tests/cuda/run.sh --on unix --device intel
    runner tests/cuda/run.sh --on tcp matrixMul-static bicubicTexture numba_vectors
    runner tests/cuda/run.sh --on two matrixMul BlackScholes-static
    runner tests/cuda/run.sh --on two --device intel heaps
    runner tests/cuda/run.sh --on far heaps
}

# Random calls, the same in each run. `tests/mpi/run.sh --seed` searches from other seeds. MPICH's
# ranks poll while they wait, so four of them take minutes on two cores.
stage_mpi() {
    runs test || return 0
    runner tests/mpi/run.sh --ranks "$(by_lane 2 2,3,4)" --cases "$(by_lane 16 240)"
    runner tests/mpi/run.sh --on two --ranks 2 --cases "$(by_lane 12 240)" \
        --mpi "$(by_lane openmpi openmpi,mpich)"
}

stage_programs() {
    local pool
    runs test || return 0
    for pool in $(by_lane "unix two" "unix tcp two"); do
        runner tests/programs/run.sh --lane "$(by_lane fast all)" --on "$pool"
    done
}

# In the lane `test` not for the figures, but because each measurement checks its data.
stage_bench() {
    if runs test; then
        step bench/quick "$PENSTOCK_PROGRAMS/penstock-bench" --quick \
            --output "$PENSTOCK_TARGET/bench-quick"
    else
        step bench/full "$PENSTOCK_PROGRAMS/penstock-bench" --output "$PENSTOCK_TARGET/bench"
    fi
}

stage_notices() {
    runs test || return 0
    runner tests/notices/run.py
    runner tests/trace/run.py
}

stage_documents() {
    runs test || return 0
    runner tests/documents/run.py
    step documents/units tests/packaging/units.sh
}

stage_guests() {
    runs test || return 0
    runner tests/guests/run.py
    runner tests/guests/groups.py
    runner tests/guests/faults.py
}

stage_load() { runner tests/load/run.py; }
stage_faults() { runner tests/faults/run.py; }

# The cases of SSH and the attacks wait more than they work, so two runs share them.
shared() {
    runner "$1" --part 1/2 &
    runner "$1" --part 2/2
    wait
}
stage_ssh() {
    if runs perf; then runner tests/ssh/run.py port_that_drops; else shared tests/ssh/run.py; fi
}
stage_hostile() {
    if runs perf; then runner tests/hostile/run.sh; else shared tests/hostile/run.sh; fi
}

stage_containers() {
    runs test || return 0
    runner tests/containers/run.sh
}

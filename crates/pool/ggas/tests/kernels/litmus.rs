//! Litmus tests with real kernels on every path: a PE that sees a signal sees what was put before
//! it, and stores and loads on both sides of a quiet keep their order. `GGAS_TEST_SCALE` raises the
//! number of rounds.

use crate::member::{self, Cast};
use crate::mesh::{self, Mesh, Runtime, Task, Told, Way, say};
use crate::pe::Pe;

pub const SOURCE: &str = r#"
#define WINDOW 4
#define SLOT 8192
#define OUT 65536
#define IN (OUT + WINDOW * SLOT)
#define EXPECTED(pe, round, at) ((uint)((round) * 2654435761u + (at) * 40503u + (pe) * 97u))

/* Both PEs send and receive, and check every word of every message. `flavour` 0: put_signal;
 * 1: put, fence, p64; 2: put of halves, p32 of the last word, put_signal without bytes; 3: put,
 * quiet, p64. */
__kernel void messages(__global ggas_heap_t *heap, ulong rounds, ulong words, ulong flavour)
{
    const ggas_t g = ggas_open(heap);
    const uint me = ggas_my_pe(g), peer = 1 - me;
    __global ulong *failed = ggas_ptr(g, 24, me), *wrong = ggas_ptr(g, 32, me);
    const ulong bytes = words * 4;
    for (ulong round = 1; round <= rounds; round++) {
        const ulong slot = round % WINDOW * SLOT;
        if (round > WINDOW && ggas_wait_until(g, 8, GGAS_CMP_GE, round - WINDOW) != GGAS_OK) { *failed = round; return; }
        __global uint *out = ggas_ptr(g, OUT + slot, me);
        for (uint at = 0; at < words; at++) out[at] = EXPECTED(me, round, at);
        int status = GGAS_OK;
        switch (flavour) {
        case 0: status = ggas_put_signal(g, IN + slot, OUT + slot, bytes, 0, round, peer); break;
        case 1:
            ggas_put(g, IN + slot, OUT + slot, bytes, peer);
            ggas_fence(g, peer);
            /* A plain store; only the fence keeps it behind the put. */
            status = ggas_p64(g, 0, round, peer);
            break;
        case 2:
            ggas_put_nbi(g, IN + slot, OUT + slot, bytes / 2, peer);
            ggas_put(g, IN + slot + bytes / 2, OUT + slot + bytes / 2, bytes - bytes / 2, peer);
            ggas_p32(g, IN + slot + bytes - 4, out[words - 1], peer);
            status = ggas_put_signal(g, 0, 0, 0, 0, round, peer);
            break;
        default:
            ggas_put_nbi(g, IN + slot, OUT + slot, bytes, peer);
            status = ggas_quiet(g);
            ggas_p64(g, 0, round, peer);
        }
        if (status != GGAS_OK || ggas_wait_until(g, 0, GGAS_CMP_GE, round) != GGAS_OK) { *failed = round; return; }
        __global const uint *in = ggas_ptr(g, IN + slot, me);
        for (uint at = 0; at < words; at++) *wrong += in[at] != EXPECTED(peer, round, at);
        if (ggas_signal(g, 8, round, peer) != GGAS_OK) { *failed = round; return; }
    }
}

/* Store buffering: each PE stores into the other's part, calls quiet, and loads from its own part.
 * At most one may miss the other's store. */
__kernel void buffering(__global ggas_heap_t *heap, ulong rounds, ulong unused, ulong fenced)
{
    const ggas_t g = ggas_open(heap);
    const uint me = ggas_my_pe(g), peer = 1 - me;
    __global ulong *failed = ggas_ptr(g, 24, me), *wrong = ggas_ptr(g, 32, me);
    for (ulong round = 1; round <= rounds; round++) {
        int status = ggas_sync_all(g);
        ggas_p64(g, 128, round, peer);
        if (fenced) status |= ggas_quiet(g);
        const ulong missed = *(volatile __global ulong *)ggas_ptr(g, 128, me) < round;
        /* Sends the other PE the round and whether this PE missed the store. */
        ggas_signal(g, 192, 2 * round + missed, peer);
        status |= ggas_wait_until(g, 192, GGAS_CMP_GE, 2 * round);
        if (status != GGAS_OK) { *failed = round; return; }
        *wrong += missed && *(volatile __global ulong *)ggas_ptr(g, 192, me) == 2 * round + 1;
    }
}
"#;

/// Arguments: kernel, rounds, words and flavour of each run.
pub fn member(pe: &Pe, told: &Told) {
    for run in told.args.chunks(4) {
        let kernel = ["messages", "buffering"][usize::try_from(run[0]).unwrap()];
        pe.heap.write(pe.pe, 0, &[0; 16]).unwrap();
        pe.heap.write(pe.pe, 24, &[0; 16]).unwrap();
        pe.heap.write(pe.pe, 128, &[0; 72]).unwrap();
        pe.meet();
        pe.run(kernel, &run[1..]);
        assert_eq!(
            pe.word(24),
            0,
            "{run:?}: the wait of this round failed: {:?}",
            pe.heap.aborted()
        );
        if run[0] == 1 && run[3] == 0 {
            // Without a fence both may miss the other's store. How often they do shows that the
            // fenced runs are meaningful.
            say("unfenced", &[run[1], pe.word(32)]);
        } else {
            assert_eq!(pe.word(32), 0, "{run:?}: number of wrong words");
        }
        pe.meet();
    }
    say("checked", &[told.args.chunks(4).map(|run| run[1]).sum()]);
}

/// Returns all runs: messages of each flavour and several sizes, and store buffering.
fn runs(rounds: u64) -> Vec<u64> {
    let mut runs = Vec::new();
    for (flavour, words) in [(0, 2), (0, 256), (1, 17), (2, 63), (3, 33), (0, 2048)] {
        // A large message copies as much as many small ones.
        let rounds = if words > 1000 { rounds / 8 } else { rounds };
        runs.extend([0, rounds.max(1), words, flavour]);
    }
    runs.extend([1, rounds, 0, 1]);
    runs.extend([1, rounds, 0, 0]);
    runs
}

fn check(way: Way, members: [Runtime; 2], options: &'static str, rounds: u64) {
    let task = Task { members: members.to_vec(), options, ..Task::new("litmus", way, 2) };
    let task = task.args(&runs(rounds * mesh::scale()));
    if let Some(said) = Mesh::start(&task).finish() {
        let checked: u64 = said.iter().map(|said| said["checked"][0]).sum();
        let unfenced = said[0]["unfenced"].clone();
        eprintln!(
            "{way:?} {members:?} {options}: {checked} rounds checked; rounds without a fence, both missed: {unfenced:?}"
        );
        assert!(checked >= rounds);
    }
}

#[test]
fn messages_are_whole_in_one_process() {
    let cast = Cast { scenario: "litmus", options: "", args: runs(4_000 * mesh::scale()) };
    member::in_one_process(&cast, SOURCE, member);
}

#[test]
fn messages_are_whole_between_processes() {
    check(Way::Shared, [Runtime::Pocl; 2], "-cl-std=CL1.2", 8_000);
}

#[test]
fn messages_are_whole_with_each_kind_of_atomics() {
    check(Way::Shared, [Runtime::Pocl; 2], "-cl-std=CL1.2 -DGGAS_ATOMICS=1", 2_000);
    check(Way::Shared, [Runtime::Pocl; 2], "-cl-std=CL3.0 -DGGAS_ATOMICS=2", 2_000);
}

#[test]
fn messages_are_whole_by_proxy() {
    check(Way::ProxyUnix, [Runtime::Pocl; 2], "-cl-std=CL1.2", 100);
    for way in Way::between_nodes() {
        check(way, [Runtime::Pocl; 2], "-cl-std=CL3.0", 100);
    }
}

#[test]
fn messages_are_whole_between_drivers() {
    if Runtime::intel_vendors().is_none() {
        return;
    }
    check(Way::Shared, [Runtime::Pocl, Runtime::Intel], "-cl-std=CL3.0", 3_000);
    check(Way::ProxyTcp, [Runtime::Intel, Runtime::Pocl], "-cl-std=CL1.2", 50);
}

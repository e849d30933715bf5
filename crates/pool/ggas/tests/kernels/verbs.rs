//! Each verb does what the header says, on each path.

use crate::member::{self, Cast};
use crate::mesh::{Mesh, Runtime, Task, Told, Way, say};
use crate::pe::Pe;

pub const SOURCE: &str = r#"
__kernel void verbs(__global ggas_heap_t *heap, ulong mapped)
{
    const ggas_t g = ggas_open(heap);
    __local int scratch;
    const uint me = ggas_my_pe(g), peer = 1 - me, item = get_local_id(0), items = get_local_size(0);
    __global ulong *wrong = ggas_ptr(g, 32, me);
    __global uchar *own = ggas_ptr(g, 0, me);
    /* All lengths and alignments of the copies of a work-group. */
    for (uint round = 1; round <= 40; round++) {
        const uint bytes = round * 13 % 700 + (round % 8 == 0 ? 3000 : 0), shift = round % 8 == 0 ? 0 : round % 5, to = round % 3;
        for (uint at = item; at < bytes; at += items) own[8192 + shift + at] = (uchar)(round * 7 + at * 3 + me);
        own[16384 + item] = 0xEE;
        ggas_put_signal_wg(g, 32768 + to, 8192 + shift, bytes, 0, round, peer);
        const int waited = ggas_wait_until_wg(g, 0, GGAS_CMP_GE, round, &scratch);
        uint differ = waited != GGAS_OK;
        for (uint at = item; at < bytes; at += items) differ += own[32768 + to + at] != (uchar)(round * 7 + at * 3 + peer);
        if (differ) atomic_add((volatile __global uint *)wrong, differ);
        if (ggas_barrier_all(g) != GGAS_OK) atomic_inc((volatile __global uint *)wrong);
    }
    if (item == 0) {
        uint differ = 0;
        differ += ggas_n_pes(g) != 2;
        differ += ggas_ptr(g, 0, 2) != 0;
        differ += (ggas_ptr(g, 0, peer) != 0) != mapped;
        differ += ggas_put(g, 0, 0, 8, 2) != GGAS_INVALID || ggas_signal(g, 0, 0, 7) != GGAS_INVALID;
        ggas_p32(g, 256, 17 + me, peer);
        ggas_p64(g, 264, 1ul << 40 | me, peer);
        /* One by one: no value is lost although the source changes at once. */
        for (ulong round = 1; round <= 300; round++) {
            *(__global ulong *)(own + 512) = round;
            ggas_put(g, 1024 + 8 * round, 512, 8, peer);
        }
        differ += ggas_quiet(g) != GGAS_OK;
        ggas_signal(g, 280, 5, peer);
        differ += ggas_wait_until(g, 280, GGAS_CMP_EQ, 5) != GGAS_OK;
        differ += *(__global uint *)(own + 256) != 17 + peer;
        differ += *(__global ulong *)(own + 264) != (1ul << 40 | peer);
        for (ulong round = 1; round <= 300; round++) differ += *(__global ulong *)(own + 1024 + 8 * round) != round;
        differ += !ggas_test(g, 280, GGAS_CMP_GE, 5) || !ggas_test(g, 280, GGAS_CMP_LE, 5) || !ggas_test(g, 280, GGAS_CMP_NE, 4);
        differ += ggas_test(g, 280, GGAS_CMP_GT, 5) || ggas_test(g, 280, GGAS_CMP_LT, 5) || ggas_test(g, 280, GGAS_CMP_EQ, 4);
        /* More entries than the ring holds, without a wait in between. */
        for (ulong round = 1; round <= 2000; round++) ggas_signal(g, 288, round, peer);
        differ += ggas_wait_until(g, 288, GGAS_CMP_GE, 2000) != GGAS_OK;
        if (differ) atomic_add((volatile __global uint *)wrong, differ);
    }
    ggas_sync_all(g);
}
"#;

/// Argument: whether the other PE's part is mapped.
pub fn member(pe: &Pe, told: &Told) {
    pe.heap.write(pe.pe, 0, &[0; 512]).unwrap();
    pe.meet();
    pe.start("verbs", &told.args, 1, 16).end();
    assert_eq!(pe.word(32), 0, "{:?}", pe.heap.aborted());
    pe.meet();
    say("verbs", &[]);
}

#[test]
fn verbs_work_in_one_process() {
    let cast = Cast { scenario: "verbs", options: "-cl-std=CL3.0", args: vec![1] };
    member::in_one_process(&cast, SOURCE, member);
}

#[test]
fn verbs_work_on_every_path() {
    for way in Way::all() {
        let args = [u64::from(way == Way::Shared)];
        if Mesh::start(&Task::new("verbs", way, 2).args(&args)).finish().is_none() {
            return;
        }
    }
}

#[test]
fn verbs_work_on_intels_runtime() {
    if Runtime::intel_vendors().is_none() {
        return;
    }
    for way in [Way::Shared, Way::ProxyTcp] {
        let members = vec![Runtime::Intel, Runtime::Pocl];
        let task = Task { members, ..Task::new("verbs", way, 2) };
        Mesh::start(&task.args(&[u64::from(way == Way::Shared)])).finish();
    }
}

//! Barriers: no PE passes before all have come, even if PEs outnumber the cores.

use crate::mesh::{self, Mesh, Runtime, Task, Told, Way, say};
use crate::pe::Pe;

pub const SOURCE: &str = r#"
/* Each PE tells its neighbour the round, meets all PEs, and checks that it was told: by then its
 * neighbour is in this round or in the next. */
__kernel void rounds(__global ggas_heap_t *heap, ulong rounds)
{
    const ggas_t g = ggas_open(heap);
    const uint me = ggas_my_pe(g), next = (me + 1) % ggas_n_pes(g);
    __global ulong *failed = ggas_ptr(g, 24, me), *wrong = ggas_ptr(g, 32, me);
    volatile __global ulong *told = ggas_ptr(g, 64 + 64 * get_group_id(0), me);
    for (ulong round = 1; round <= rounds; round++) {
        if (get_local_id(0) == 0) ggas_p64(g, 64 + 64 * get_group_id(0), round, next);
        if (ggas_barrier_all(g) != GGAS_OK) { *failed = round; return; }
        if (get_local_id(0) == 0 && *told != round && *told != round + 1) atomic_inc((volatile __global uint *)wrong);
    }
}

/* Counts requests to the proxy: barriers without puts, then barriers with a put before each. */
__kernel void asked(__global ggas_heap_t *heap, ulong rounds)
{
    const ggas_t g = ggas_open(heap);
    const uint me = ggas_my_pe(g), next = (me + 1) % ggas_n_pes(g);
    __global ulong *failed = ggas_ptr(g, 24, me), *wrong = ggas_ptr(g, 32, me), *posts = ggas_ptr(g, 40, me);
    volatile __global ulong *told = ggas_ptr(g, 64, me);
    const ulong before = g.heap->tail;
    for (ulong round = 1; round <= rounds; round++)
        if (ggas_barrier_all(g) != GGAS_OK) { *failed = round; return; }
    posts[0] = g.heap->tail - before;
    for (ulong round = 1; round <= rounds; round++) {
        ggas_p64(g, 64, round, next);
        if (ggas_barrier_all(g) != GGAS_OK) { *failed = round; return; }
        *wrong += *told != round && *told != round + 1;
    }
    posts[1] = g.heap->tail - before - posts[0];
}

/* Teams of even and odd PEs at the same time in different slots, then of halves in the same slot. */
__kernel void teams(__global ggas_heap_t *heap, ulong rounds)
{
    const ggas_t g = ggas_open(heap);
    const uint me = ggas_my_pe(g), n = ggas_n_pes(g);
    __global ulong *failed = ggas_ptr(g, 24, me), *wrong = ggas_ptr(g, 32, me);
    volatile __global ulong *told = ggas_ptr(g, 64, me);
    for (ulong round = 1; round <= rounds; round++) {
        const ggas_team_t team = round % 2 ? ggas_team_split(g, 1 + me % 2, me % 2, 2, n / 2)
                                           : ggas_team_split(g, 1, me < n / 2 ? 0 : n / 2, 1, n / 2);
        const int index = ggas_team_my_pe(g, team);
        ggas_p64(g, 64, round, ggas_team_pe(team, (index + 1) % ggas_team_n_pes(team)));
        if (ggas_barrier(g, team) != GGAS_OK) { *failed = round; return; }
        *wrong += *told != round;
        /* The next round has another neighbour. */
        if (ggas_sync_all(g) != GGAS_OK) { *failed = round; return; }
    }
    const ggas_team_t others = ggas_team_split(g, 3, me == 0 ? 1 : 0, 1, 1);
    *wrong += ggas_barrier(g, others) != GGAS_INVALID;
    *wrong += ggas_team_n_pes(ggas_team_split(g, 3, 0, 1, n + 1)) != 0;
    *wrong += ggas_team_n_pes(ggas_team_split(g, GGAS_TEAM_SLOTS, 0, 1, 1)) != 0;
}
"#;

/// Arguments: kernel, rounds, work-groups, work-items.
pub fn member(pe: &Pe, told: &Told) {
    let [kernel, rounds, groups, items] = told.args[..] else { panic!("four arguments") };
    pe.heap.write(pe.pe, 24, &[0; 16]).unwrap();
    pe.meet();
    let kernel = ["rounds", "teams", "asked"][usize::try_from(kernel).unwrap()];
    let taken = pe.start(kernel, &[rounds], groups, items).end();
    assert_eq!(pe.word(24), 0, "the barrier of this round failed: {:?}", pe.heap.aborted());
    assert_eq!(pe.word(32), 0, "rounds in which a PE passed too early");
    say("posts", &[pe.word(40), pe.word(48)]);
    say("round_ns", &[u64::try_from(taken.as_nanos()).unwrap() / rounds]);
    pe.meet();
    told.leave_together();
}

fn check(way: Way, members: Vec<Runtime>, args: &[u64]) {
    let task = Task { members, ..Task::new("barriers", way, 0) };
    let Some(said) = Mesh::start(&task.clone().args(args)).finish() else { return };
    if args[0] == 2 {
        for said in &said {
            let (rounds, flags) = (args[1], task.members.len() as u64 - 1);
            assert_eq!(
                said["posts"][0],
                rounds * flags,
                "barriers do not ask whether their flags have arrived"
            );
            assert_eq!(
                said["posts"][1],
                rounds * (1 + 1 + flags),
                "the store, the question whether it arrived, and the flags"
            );
        }
    }
    let ns = said.iter().map(|said| said["round_ns"][0]).max().unwrap();
    eprintln!("{way:?}, {} PEs, {args:?}: {ns} ns a round", task.members.len());
    // Only the end is tested: the speed depends on other load of the machine.
}

#[test]
fn two_four_and_eight_meet_two_thousand_times() {
    for count in [2, 4, 8] {
        check(Way::Shared, vec![Runtime::Pocl; count], &[0, 2_000 * mesh::scale(), 1, 1]);
    }
}

#[test]
fn several_work_groups_meet() {
    check(Way::Shared, vec![Runtime::Pocl; 2], &[0, 1_000 * mesh::scale(), 2, 4]);
}

#[test]
fn members_meet_by_proxy() {
    for way in Way::between_nodes() {
        check(way, vec![Runtime::Pocl; 3], &[0, 50 * mesh::scale(), 1, 4]);
    }
}

#[test]
fn barriers_wait_for_what_was_put_and_not_for_flags() {
    for way in Way::between_nodes() {
        check(way, vec![Runtime::Pocl; 3], &[2, 50 * mesh::scale(), 1, 1]);
    }
}

#[test]
fn more_members_than_cores_meet_by_proxy() {
    for (way, count) in Way::between_nodes().into_iter().flat_map(|way| [(way, 5), (way, 8)]) {
        check(way, vec![Runtime::Pocl; count], &[0, 20 * mesh::scale(), 1, 1]);
    }
}

#[test]
fn teams_meet_by_themselves() {
    check(Way::Shared, vec![Runtime::Pocl; 4], &[1, 300 * mesh::scale(), 1, 1]);
    check(Way::ProxyUnix, vec![Runtime::Pocl; 4], &[1, 20 * mesh::scale(), 1, 1]);
}

#[test]
fn different_drivers_meet() {
    if Runtime::intel_vendors().is_some() {
        check(Way::Shared, vec![Runtime::Pocl, Runtime::Intel], &[0, 300 * mesh::scale(), 1, 4]);
    }
}

//! Every wait ends: by its bound, by an abort of any member, or by the death of a member.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_ggas::{Heap, Plan};
use penstock_trial::{Need, in_time, patience, skip};

use crate::mesh::{self, Mesh, Task, Told, Way, say};
use crate::pe::{self, Pe};

pub const SOURCE: &str = r#"
/* `what`: 0 a wait, 1 a barrier, 2 endless puts. */
__kernel void endless(__global ggas_heap_t *heap, ulong what)
{
    const ggas_t g = ggas_open(heap);
    const uint next = (ggas_my_pe(g) + 1) % ggas_n_pes(g);
    int status = GGAS_OK;
    if (what == 0) status = ggas_wait_until(g, 0, GGAS_CMP_EQ, 1);
    if (what == 1) status = ggas_barrier_all(g);
    while (what == 2 && status == GGAS_OK) {
        status = ggas_put(g, 4096, 8192, 1024, next);
        if (status == GGAS_OK) status = ggas_quiet(g);
        if (ggas_aborted(g)) status = GGAS_ABORTED;
    }
    __global ulong *result = ggas_ptr(g, 24, ggas_my_pe(g));
    *result = -status;
}
"#;

const TIMEOUT: u64 = 1;
const ABORTED: u64 = 2;

/// Arguments: `what` of the kernel, and the action of this member: 0 nothing, 1 aborts and all
/// continue, 2 waits for its bound, 3 leaves.
pub fn member(pe: &Pe, told: &Told) {
    let [what, how] = told.args[..] else { panic!("two arguments") };
    // With a short bound another member that starts slowly would be too late.
    if how != 2 {
        pe.meet();
    }
    // The first member never comes to the barrier.
    if how == 3 && told.me == 0 {
        return;
    }
    // The member that will be killed does not come to the barrier either.
    if (what, how, told.me) == (1, 0, 2) {
        say("waiting", &[]);
        std::thread::sleep(2 * patience());
    }
    let flight = pe.start("endless", &[what], 1, 1);
    say("waiting", &[]);
    if how == 1 && told.me == 0 {
        std::thread::sleep(Duration::from_millis(50));
        pe.heap.abort("enough");
    }
    let taken = flight.end();
    say("ended", &[pe.word(24), u64::try_from(taken.as_millis()).unwrap()]);
    if how == 1 {
        assert_eq!(pe.heap.aborted().as_deref(), Some("enough"));
        // All kernels end before one starts again: the test makes this file then.
        told.wait_for_file("ended");
        pe.heap.reset(1).unwrap();
        say("reset", &[]);
        told.wait_for_file("reset");
        pe.meet();
    }
    if how == 0 {
        // The reason names the dead member, or another survivor that ended before this one looked.
        say(
            "reason",
            &[u64::from(pe.heap.aborted().is_some_and(|why| why.contains("has ended or left")))],
        );
        assert!(pe.heap.reset(2).is_err(), "a member has gone");
    }
}

/// Kills the last member, and returns the time until the others have ended.
fn kill(way: Way, what: u64) -> Duration {
    let mut task = Task::new("ends", way, 3).args(&[what, 0]);
    task.timeout = 2 * patience();
    let mut mesh = Mesh::start(&task);
    for member in 0..3 {
        if !mesh.hear(member, "waiting").contains_key("waiting") {
            skip(Need::OpenCl, "a member has no device");
            return Duration::ZERO;
        }
    }
    std::thread::sleep(Duration::from_millis(20));
    let killed = Instant::now();
    // SAFETY: an unreaped child of this process, so the process id is still its own.
    let code = unsafe { libc::kill(i32::try_from(mesh.children[2].id()).unwrap(), libc::SIGKILL) };
    assert_eq!(code, 0);
    for member in 0..2 {
        let said = mesh.hear(member, "ended");
        assert_eq!(said["ended"][0], ABORTED, "{way:?} {what}");
    }
    let taken = killed.elapsed();
    for member in 0..2 {
        let said = mesh.hear(member, "");
        assert_eq!((said["reason"][0], said["left_mapped"][0]), (1, 0), "{way:?} {what}");
        assert!(mesh::wait(&mut mesh.children[member]).success());
    }
    taken
}

#[test]
fn the_death_of_a_member_ends_all_waits() {
    let mut slowest = Duration::ZERO;
    let mut kills = vec![(Way::Shared, 0), (Way::Shared, 1)];
    kills.extend(Way::between_nodes().into_iter().flat_map(|way| [(way, 0), (way, 2)]));
    for _ in 0..mesh::scale() {
        for &(way, what) in &kills {
            // Waits that nobody ends last for twice as long, and end as such.
            slowest = slowest.max(kill(way, what));
        }
    }
    eprintln!(
        "{} members killed; the others ended within {slowest:?}",
        kills.len() as u64 * mesh::scale()
    );
}

#[test]
fn an_abort_ends_all_waits_and_a_reset_begins_anew() {
    for way in Way::all() {
        let mut mesh = Mesh::start(&Task::new("ends", way, 2).args(&[0, 1]));
        for step in ["ended", "reset"] {
            for member in 0..2 {
                let said = mesh.hear(member, step);
                if said.contains_key("skipped") {
                    skip(Need::OpenCl, "a member has no device");
                    return;
                }
                if step == "ended" {
                    assert_eq!(said["ended"][0], ABORTED, "{way:?}");
                }
            }
            mesh.make_file(step);
        }
        mesh.finish();
    }
}

#[test]
fn a_wait_for_nothing_ends_by_its_bound() {
    for (way, what) in [(Way::Shared, 0), (Way::ProxyUnix, 0)] {
        let mut task = Task::new("ends", way, 2).args(&[what, 2]);
        task.timeout = Duration::from_millis(300);
        let Some(said) = Mesh::start(&task).finish() else { return };
        let ends: Vec<[u64; 2]> =
            said.iter().map(|said| said["ended"][..].try_into().unwrap()).collect();
        // The member that times out first and leaves aborts the other.
        assert!(ends.iter().any(|end| end[0] == TIMEOUT), "{way:?}: {ends:?}");
        for [result, ms] in ends {
            // The thread that moves the clock may lose its core between looking and moving.
            assert!(result == ABORTED || result == TIMEOUT && ms >= 150, "{way:?}: {ms} ms");
        }
    }
}

#[test]
fn who_leaves_ends_the_waits_of_the_others() {
    for way in std::iter::once(Way::Shared).chain(Way::between_nodes()) {
        let mut task = Task::new("ends", way, 2).args(&[1, 3]);
        task.timeout = 2 * patience();
        let Some(said) = Mesh::start(&task).finish() else { return };
        assert_eq!(said[1]["ended"][0], ABORTED, "{way:?}");
    }
}

/// Performs a wait of 300 ms for which no clock is moved, so that its rounds are counted. Returns
/// how long it took; `None` without a device.
fn wait_without_clock() -> Option<Duration> {
    let device = pe::device()?;
    let timeout = Duration::from_millis(300);
    let plan = Plan { id: 9, members: vec![0], me: 0, bytes: 1 << 16, timeout, force_proxy: false };
    let heap = Arc::new(Heap::create(plan).unwrap());
    heap.start().unwrap();
    let pe = Pe::new(&heap, 0, &device, SOURCE, "-cl-std=CL1.2");
    let taken = pe.start_untold("endless", &[0]).end();
    assert_eq!(pe.word(24), TIMEOUT);
    eprintln!("a bound of {timeout:?} without a clock took {taken:?}");
    Some(taken)
}

#[test]
fn a_wait_that_no_clock_is_moved_for_ends() {
    in_time("a wait without a clock", wait_without_clock);
}

/// On a busy machine each round is a long nap.
#[test]
#[ignore = "perf: beside other work, a wait may take longer than its bound, but not much"]
fn perf_a_wait_that_no_clock_is_moved_for_ends_about_at_its_bound() {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 * std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let taken = wait_without_clock();
        is_over.store(true, Ordering::Relaxed);
        assert!(taken.is_none_or(|taken| taken < Duration::from_secs(20)), "{taken:?}");
    });
}

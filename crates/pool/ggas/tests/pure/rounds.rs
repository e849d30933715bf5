//! All orders of steps in which members meet at barriers, time out, abort, end, are reset and meet
//! again. The search visits all states for two to four members and two barriers in each of two
//! generations.
//!
//! What a member knows about aborts and resets is the real `AbortState`. The kernels' part is
//! written here as `ggas_raw_barrier` of `include/ggas.h`, and the host's access to a head as
//! `MemberState::begin_generation`. A step is one access that others can see. `model.rs` explores
//! the order of memory accesses; here all see each access at once, which leaves room for the whole
//! protocol.
//!
//! In each reachable state:
//! * A work-group that passes a barrier was met there by all work-groups of all PEs, in this
//!   generation and round.
//! * A barrier fails only if a wait timed out in this generation, the generation was aborted, or a
//!   member has ended.
//! * Some thread can go on, or all have ended: no abort or reset is lost.
//!
//! Each [`Defect`] removes one line of the protocol, and must be found.

use crate::explorer::{Config, Defect, explore};

const TWO: Config = Config {
    groups: &[1, 1],
    proxied: false,
    aborts: 0,
    ends: 0,
    timeouts: false,
    defect: Defect::None,
};
const GROUPS: Config = Config { groups: &[2, 1], ..TWO };
const THREE: Config = Config { groups: &[1, 1, 1], ..TWO };

fn holds(config: Config) {
    let found = explore(config);
    println!("{found:?} states of {config:?}");
    assert!(found.is_ok(), "{}", found.unwrap_err());
}

#[test]
fn all_meet_again_after_a_reset() {
    for proxied in [false, true] {
        holds(Config { proxied, ..GROUPS });
        holds(Config { proxied, ..THREE });
    }
    holds(Config { groups: &[1, 1, 1, 1], ..TWO });
}

#[test]
fn an_abort_ends_all_waits_of_its_generation_and_no_later_one() {
    holds(Config { aborts: 2, ..TWO });
    holds(Config { proxied: true, aborts: 1, ..TWO });
    holds(Config { aborts: 1, ..GROUPS });
}

#[test]
fn a_member_that_times_out_in_the_middle_is_met_again_after_a_reset() {
    for proxied in [false, true] {
        holds(Config { proxied, timeouts: true, ..TWO });
    }
    holds(Config { timeouts: true, ..GROUPS });
}

#[test]
fn timeouts_and_aborts_do_not_get_in_each_others_way() {
    holds(Config { timeouts: true, aborts: 1, ..TWO });
}

#[test]
fn who_ends_leaves_nobody_waiting() {
    holds(Config { ends: 1, ..GROUPS });
    holds(Config { ends: 1, aborts: 1, ..TWO });
    holds(Config { ends: 1, ..THREE });
}

fn finds(defect: Defect, config: Config, what: &str) {
    let found = explore(Config { defect, ..config }).expect_err("a defect that is not found");
    let sentence = found.split(", in Config").next().unwrap_or_default();
    assert!(sentence.contains(what), "{defect:?} is found as: {found}");
}

#[test]
fn a_reset_that_leaves_the_count_of_work_groups_would_be_found() {
    finds(Defect::KeepsArrived, Config { aborts: 1, ..GROUPS }, "passes a barrier");
    finds(Defect::KeepsArrived, Config { timeouts: true, ..GROUPS }, "passes a barrier");
}

#[test]
fn a_reset_that_leaves_a_status_would_be_found() {
    finds(Defect::KeepsStatus, Config { timeouts: true, ..TWO }, "fails without a reason");
}

#[test]
fn a_reset_that_leaves_the_counts_of_meetings_would_be_found() {
    finds(Defect::KeepsMet, Config { aborts: 1, ..TWO }, "");
    finds(Defect::KeepsMet, Config { timeouts: true, ..TWO }, "passes a barrier");
}

#[test]
fn a_reset_that_leaves_the_abort_would_be_found() {
    finds(Defect::KeepsAbort, Config { aborts: 1, ..TWO }, "fails without a reason");
}

#[test]
fn a_reset_that_forgets_an_abort_of_what_it_begins_would_be_found() {
    finds(Defect::ForgetsNext, Config { aborts: 1, ..TWO }, "nobody can go on");
}

#[test]
fn a_note_that_is_compared_before_a_reset_and_obeyed_after_it_would_be_found() {
    finds(Defect::ComparesEarly, Config { aborts: 1, ..TWO }, "fails without a reason");
}

#[test]
fn a_note_that_is_not_compared_would_be_found() {
    finds(Defect::ObeysAll, Config { aborts: 1, ..TWO }, "fails without a reason");
}

#[test]
fn an_abort_that_wakes_nobody_would_be_found() {
    finds(Defect::RingsNotAtAll, Config { aborts: 1, ..TWO }, "nobody can go on");
}

#[test]
fn a_wait_for_any_flag_would_be_found() {
    finds(Defect::TakesAnyFlag, TWO, "passes a barrier");
}

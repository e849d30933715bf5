//! Single cases of the content that is current after a command that writes has failed.

use crate::common::{Test, only_fetch};
use penstock_coherence::{
    Access, Action, CommandId, Fetch, Machine, NodeId, Place, Source, Verdict,
};

/// Makes a test with three places, each on a different node.
fn three_nodes(machine: Machine, has_initial: bool) -> Test {
    Test::on(machine, &[0, 1, 2], has_initial)
}

/// As [`three_nodes`], with content that a command at place 0 has written.
fn written(machine: Machine) -> Test {
    let mut test = three_nodes(machine, false);
    test.send(1, 0, Access::Write);
    test.end(1, true);
    test
}

impl Test {
    fn end(&mut self, id: u64, is_ok: bool) {
        self.machine.ended(CommandId(id), is_ok);
    }

    fn end_transfer(&mut self, fetch: &Fetch, is_ok: bool) {
        self.machine.ended(fetch.departure, is_ok);
        self.machine.ended(fetch.arrival, is_ok);
    }

    /// Checks that a reader at `place` gets the content from `source`, or has it if `source` is
    /// `None`.
    fn comes_from(&mut self, id: u64, place: Place, source: Option<Source>) {
        let plan = self.send(id, place, Access::Read);
        assert_eq!(
            plan.fetches.first().map(|fetch| fetch.source),
            source,
            "at place {place}: {plan:?}"
        );
    }
}

/// A command at place 1 that may write a part fails. The transfer that brings the rest ends well or
/// not.
fn failed_write(machine: Machine, arrives_well: bool) {
    let mut test = written(machine);
    let fetch = only_fetch(&test.send(2, 1, Access::Write));
    test.end_transfer(&fetch, arrives_well);
    test.end(2, false);
    test.comes_from(3, 0, None);
    // The command may have written anything there before it failed.
    test.comes_from(4, 1, Some(Source::Place(0)));
}

#[test]
fn the_content_before_a_failed_command_is_current_where_it_still_is() {
    failed_write(Machine::default(), true);
    failed_write(Machine::default(), false);
}

/// A command at place 1 fails that uses content given at creation. The machine is not told whether
/// that content has arrived.
fn failed_use_of_initial(machine: Machine, access: Access) {
    let mut test = three_nodes(machine, true);
    assert_eq!(only_fetch(&test.send(1, 1, access)).source, Source::Initial);
    test.end(1, false);
    test.comes_from(2, 0, Some(Source::Initial));
    test.end(2, true);
    test.comes_from(3, 1, Some(Source::Place(0)));
}

#[test]
fn content_given_at_creation_is_brought_again_after_a_failed_use() {
    failed_use_of_initial(Machine::default(), Access::Write);
    failed_use_of_initial(Machine::default(), Access::Read);
}

/// A reader at place 1 has failed, and the machine has not heard the end of the transfer that the
/// reader waited for.
fn failed_reader(machine: Machine) {
    let mut test = written(machine);
    let fetch = only_fetch(&test.send(2, 1, Access::Read));
    test.end(2, false);
    let again = only_fetch(&test.send(3, 1, Access::Read));
    assert!(again.target_waits.contains(&fetch.arrival), "{again:?}");
    test.comes_from(4, 0, None);
}

#[test]
fn content_is_brought_again_whose_arrival_was_not_heard_of_when_its_reader_failed() {
    failed_reader(Machine::default());
}

#[test]
fn content_that_only_the_failed_command_s_place_has_stays_there() {
    let mut test = written(Machine::default());
    test.send(2, 0, Access::Write);
    test.end(2, false);
    test.comes_from(3, 1, Some(Source::Place(0)));
}

#[test]
fn undefined_content_does_not_move_after_a_failed_command() {
    let mut test = three_nodes(Machine::default(), false);
    test.send(1, 1, Access::Write);
    test.end(1, false);
    test.comes_from(2, 0, None);
    test.comes_from(3, 1, None);
}

#[test]
fn a_row_of_writers_is_undone_only_if_all_of_them_fail() {
    for second_fails in [true, false] {
        // Their ends may be told in any order.
        for ends in [[2, 3], [3, 2]] {
            let mut test = written(Machine::default());
            test.send(2, 1, Access::Write);
            test.send(3, 1, Access::Write);
            for id in ends {
                test.end(id, id == 3 && !second_fails);
            }
            let source = if second_fails { None } else { Some(Source::Place(1)) };
            test.comes_from(4, 0, source);
        }
    }
}

#[test]
fn a_later_writer_that_has_not_ended_is_not_undone() {
    let mut test = written(Machine::default());
    test.send(2, 1, Access::Write);
    test.send(3, 1, Access::Write);
    test.end(2, false);
    test.comes_from(4, 0, Some(Source::Place(1)));
}

#[test]
fn a_failed_writer_behind_one_that_ended_well_leaves_what_that_has_written() {
    let mut test = written(Machine::default());
    test.send(2, 1, Access::Write);
    test.send(3, 1, Access::Write);
    test.end(2, true);
    test.end(3, false);
    test.comes_from(4, 0, Some(Source::Place(1)));
}

#[test]
fn writers_in_different_places_are_undone_to_the_oldest_content() {
    let mut test = three_nodes(Machine::default(), true);
    test.send(1, 1, Access::Write);
    let fetch = only_fetch(&test.send(2, 0, Access::Write));
    assert_eq!(fetch.source, Source::Place(1));
    test.end_transfer(&fetch, false);
    test.end(1, false);
    test.end(2, false);
    test.comes_from(3, 0, Some(Source::Initial));
}

#[test]
fn a_copy_that_was_replaced_before_the_failure_was_heard_is_not_the_old_content() {
    let mut test = written(Machine::default());
    test.send(2, 1, Access::Write);
    let fetch = only_fetch(&test.send(3, 0, Access::Read));
    test.end(2, false);
    test.end_transfer(&fetch, true);
    // If the command did nothing, place 1 has the old content, but no other place has it any more.
    test.comes_from(4, 2, Some(Source::Place(0)));
    test.comes_from(5, 1, None);
}

#[test]
fn a_third_place_gives_the_old_content_after_a_copy_was_replaced() {
    let mut test = written(Machine::default());
    let third = only_fetch(&test.send(2, 2, Access::Read));
    test.end_transfer(&third, true);
    test.end(2, true);
    test.send(3, 1, Access::Write);
    let replacing = only_fetch(&test.send(4, 0, Access::Read));
    test.end(3, false);
    // The bytes of the failed command are still on their way to place 0.
    let again = only_fetch(&test.send(5, 0, Access::Read));
    assert_eq!(again.source, Source::Place(2));
    assert!(again.target_waits.contains(&replacing.arrival), "{again:?}");
}

#[test]
fn a_copy_that_may_still_not_arrive_is_not_gone_back_to() {
    let mut test = written(Machine::default());
    let fetch = only_fetch(&test.send(2, 1, Access::Read));
    test.send(3, 0, Access::Write);
    test.end(3, false);
    // Place 0 still counts: it is the source of the transfer, which may fail.
    test.end_transfer(&fetch, false);
    test.comes_from(4, 0, None);
}

#[test]
fn a_use_waits_until_it_is_known_whether_the_old_content_arrives() {
    for arrives_well in [true, false] {
        let mut test = written(Machine::default());
        let fetch = only_fetch(&test.send(2, 1, Access::Read));
        test.send(3, 0, Access::Write);
        test.end(3, false);
        let verdict = test.submit(4, 0, &[], Access::Read);
        assert_eq!(verdict, Verdict::Hold { until_ended: vec![fetch.arrival] });
        test.end_transfer(&fetch, arrives_well);
        let action = test.next_action();
        let Some(Action::Send(CommandId(4), plan)) = action else { panic!("{action:?}") };
        let sources: Vec<_> = plan.fetches.iter().map(|fetch| fetch.source).collect();
        assert_eq!(sources, if arrives_well { vec![Source::Place(1)] } else { Vec::new() });
    }
}

/// The machine hears that content did not reach a writer before it hears that the writer failed.
#[test]
fn a_use_waits_for_the_writer_that_the_content_did_not_reach() {
    for (writes, place) in [([2].as_slice(), 0), (&[2], 1), (&[2, 3], 0)] {
        let mut test = written(Machine::default());
        let fetch = only_fetch(&test.send(2, 1, Access::Write));
        // The copy at place 1 still counts, because the transfer may arrive.
        writes.iter().skip(1).for_each(|id| _ = test.send(*id, 1, Access::Write));
        test.end_transfer(&fetch, false);
        for id in writes {
            let verdict = test.submit(10 * id, place, &[], Access::Read);
            assert!(matches!(verdict, Verdict::Hold { .. }), "{verdict:?}");
        }
        assert_eq!(test.next_action(), None);
        writes.iter().for_each(|id| test.end(*id, false));
        let action = test.next_action();
        let Some(Action::Send(CommandId(20), plan)) = action else { panic!("{action:?}") };
        let sources: Vec<_> = plan.fetches.iter().map(|fetch| fetch.source).collect();
        assert_eq!(sources, if place == 0 { Vec::new() } else { vec![Source::Place(0)] });
    }
}

#[test]
fn a_use_that_waits_for_a_writer_learns_that_the_content_is_lost() {
    let mut test = written(Machine::default());
    let fetch = only_fetch(&test.send(2, 1, Access::Write));
    test.end_transfer(&fetch, false);
    let verdict = test.submit(3, 2, &[], Access::Read);
    assert_eq!(verdict, Verdict::Hold { until_ended: vec![CommandId(2)] });
    test.machine.lost(NodeId(0));
    assert_eq!(test.next_action(), None);
    test.end(2, false);
    assert_eq!(test.next_action(), Some(Action::ContentLost(CommandId(3))));
}

/// No place has the old content any more, so the end of the writer decides nothing.
#[test]
fn content_that_was_replaced_and_did_not_arrive_is_lost_at_once() {
    let mut test = written(Machine::default());
    let fetch = only_fetch(&test.send(2, 1, Access::Write));
    // This reader is early: the host has not heard of the failure.
    let replacing = only_fetch(&test.send(3, 0, Access::Read));
    test.end_transfer(&fetch, false);
    test.end_transfer(&replacing, false);
    assert_eq!(test.submit(4, 0, &[], Access::Read), Verdict::ContentLost);
}

#[test]
fn the_copy_of_a_lost_node_is_not_gone_back_to() {
    let mut test = written(Machine::default());
    test.send(2, 1, Access::Write);
    test.machine.lost(NodeId(0));
    test.end(2, false);
    test.comes_from(3, 2, Some(Source::Place(1)));
}

#[test]
fn a_long_row_of_writers_is_not_undone() {
    const ROW: u64 = 300;
    let mut test = written(Machine::default());
    (2..2 + ROW).for_each(|id| _ = test.send(id, 1, Access::Write));
    (2..2 + ROW).for_each(|id| test.end(id, false));
    test.comes_from(1000, 0, Some(Source::Place(1)));
}

/// Checks that each case above fails on a machine without the rule that the case tests.
#[cfg(feature = "planted")]
#[test]
fn the_cases_notice_when_their_rule_is_off() {
    use penstock_coherence::Rule;

    let notices = |case: fn(Machine), rule: Rule| {
        let run = || case(Machine::without(rule));
        assert!(std::panic::catch_unwind(run).is_err(), "{rule:?} is off, and nothing was noticed");
    };
    notices(|machine| failed_write(machine, true), Rule::FailedWriteIsUndone);
    notices(|machine| failed_write(machine, false), Rule::FailedWriteIsUndone);
    notices(|machine| failed_use_of_initial(machine, Access::Write), Rule::FailedWriteIsUndone);
    notices(failed_reader, Rule::FailedUseBringsAgain);
    notices(|machine| failed_use_of_initial(machine, Access::Read), Rule::FailedUseBringsAgain);
}

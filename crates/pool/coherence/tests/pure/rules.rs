//! Single cases of the rules about failures of transfers and writes, and about transfers on their
//! way.

use crate::common::{CONTEXT, Test, only_fetch};
use penstock_coherence::{
    Access, Action, CommandId, HostShape, InPlace, Machine, NodeId, QueueId, Source, Submit,
    Verdict,
};

/// Makes a test with three places. The last two are on one node.
fn three_places(machine: Machine) -> Test {
    Test::on(machine, &[0, 1, 1], false)
}

#[test]
fn a_transfer_that_failed_has_brought_nothing() {
    let mut test = three_places(Machine::default());
    test.send(1, 0, Access::Write);
    let fetch = only_fetch(&test.send(2, 1, Access::Read));
    test.machine.ended(fetch.arrival, false);
    let again = only_fetch(&test.send(3, 1, Access::Read));
    assert_eq!((again.source, again.target), (Source::Place(0), 1));
}

#[test]
fn content_given_at_creation_is_not_brought_under_a_transfer_to_the_same_copy() {
    let mut test = Test::on(Machine::default(), &[0, 1], true);
    test.send(1, 0, Access::Overwrite);
    let Verdict::Send { plan, .. } = test.submit(2, 1, &[CommandId(1)], Access::Read) else {
        panic!("held")
    };
    test.machine.sent(CommandId(2));
    let fetch = only_fetch(&plan);
    // The overwrite was refused, so the content given at creation is current again, and no place
    // has it.
    test.machine.ended(CommandId(1), false);
    test.machine.ended(CommandId(2), false);
    let verdict = test.submit(3, 1, &[], Access::Read);
    assert!(matches!(verdict, Verdict::Hold { .. }), "{verdict:?}");
    test.machine.ended(fetch.departure, true);
    test.machine.ended(fetch.arrival, true);
    let action = test.next_action();
    let Some(Action::Send(id, plan)) = action else { panic!("{action:?}") };
    assert_eq!((id, only_fetch(&plan).source), (CommandId(3), Source::Initial));
}

#[test]
fn what_leaves_before_it_has_arrived_has_arrived_nowhere_if_it_does_not_arrive() {
    let mut test = three_places(Machine::default());
    test.send(1, 0, Access::Write);
    let first = only_fetch(&test.send(2, 1, Access::Read));
    // The second transfer leaves from the nearest place.
    let plan = test.send(3, 2, Access::Read);
    let second = only_fetch(&plan);
    assert_eq!(second.source, Source::Place(1));
    assert_eq!(plan.waits, [first.arrival, second.arrival], "the reader fails with either of them");
    test.machine.ended(second.arrival, true);
    test.machine.ended(first.arrival, false);
    let again = only_fetch(&test.send(4, 2, Access::Read));
    assert_eq!(again.source, Source::Place(0));
}

#[test]
fn content_whose_only_transfer_failed_is_lost_with_its_node() {
    let mut test = three_places(Machine::default());
    test.send(1, 0, Access::Write);
    test.machine.lost(NodeId(0));
    // The only copy is asked for nevertheless, so that its loss is told.
    let fetch = only_fetch(&test.send(2, 1, Access::Read));
    assert_eq!(fetch.source, Source::Place(0));
}

#[test]
fn a_write_over_everything_that_failed_leaves_the_old_content_current() {
    let mut test = three_places(Machine::default());
    test.send(1, 0, Access::Write);
    test.machine.ended(CommandId(1), true);
    assert_eq!(test.send(2, 1, Access::Overwrite).fetches, []);
    test.machine.ended(CommandId(2), false);
    assert_eq!(test.send(3, 0, Access::Read).fetches, [], "place 0 has the content");
    let fetch = only_fetch(&test.send(4, 1, Access::Read));
    assert_eq!(fetch.source, Source::Place(0));
}

/// Content is on its way to place 1 when a write over everything there fails. Returns whether that
/// place then has the content.
fn failed_write_over_what_arrives(arrives_well: bool, write_ends_first: bool) -> bool {
    let mut test = three_places(Machine::default());
    test.send(1, 0, Access::Write);
    test.machine.ended(CommandId(1), true);
    let fetch = only_fetch(&test.send(2, 1, Access::Read));
    test.send(3, 1, Access::Overwrite);
    if write_ends_first {
        test.machine.ended(CommandId(3), false);
    }
    test.machine.ended(fetch.arrival, arrives_well);
    test.machine.ended(CommandId(3), false);
    assert_eq!(test.send(4, 0, Access::Read).fetches, [], "place 0 has the content");
    test.send(5, 1, Access::Read).fetches.is_empty()
}

#[test]
fn a_write_that_failed_leaves_what_a_transfer_has_brought_and_nothing_else() {
    for write_ends_first in [false, true] {
        assert!(failed_write_over_what_arrives(true, write_ends_first));
        assert!(!failed_write_over_what_arrives(false, write_ends_first));
    }
}

#[test]
fn an_earlier_blocking_write_that_is_told_late_does_not_stand_for_a_later_one() {
    let mut test = three_places(Machine::default());
    let (queue, other) = (QueueId(0), QueueId(1));
    for id in [1, 2] {
        test.send(id, 0, Access::Overwrite);
    }
    // The thread of the first write is slower than that of the second one.
    test.machine.settle(CONTEXT, queue, true, CommandId(2));
    test.machine.settle(CONTEXT, queue, true, CommandId(1));
    assert_eq!(test.machine.unsettled(CONTEXT, Some(other)), [CommandId(2)]);
}

#[test]
fn a_write_over_everything_comes_after_a_transfer_on_its_way_there() {
    let mut test = three_places(Machine::default());
    test.send(1, 0, Access::Write);
    let fetch = only_fetch(&test.send(2, 1, Access::Read));
    let plan = test.send(3, 1, Access::Overwrite);
    assert!(plan.ends.contains(&fetch.arrival) && !plan.waits.contains(&fetch.arrival));
}

#[test]
fn what_follows_a_failed_write_over_everything_comes_after_that_transfer_too() {
    let mut test = three_places(Machine::default());
    test.send(1, 0, Access::Write);
    let fetch = only_fetch(&test.send(2, 1, Access::Read));
    // The write may fail before the transfer has ended.
    test.send(3, 1, Access::Overwrite);
    assert!(test.send(4, 1, Access::Write).ends.contains(&fetch.arrival));
    test.machine.ended(CommandId(3), false);
    assert!(test.send(5, 1, Access::Write).ends.contains(&fetch.arrival));
    test.machine.ended(fetch.arrival, true);
    assert_eq!(test.send(6, 1, Access::Write).ends, []);
}

#[test]
fn a_failed_client_event_fails_what_names_it_and_nothing_else() {
    let mut test = three_places(Machine::default());
    let event = CommandId(50);
    test.machine.client_event(event);
    assert!(matches!(test.submit(1, 0, &[event], Access::Read), Verdict::Hold { .. }));
    assert!(
        matches!(test.submit(2, 0, &[], Access::Read), Verdict::Hold { .. }),
        "behind the first"
    );
    test.machine.ended(event, false);
    assert_eq!(test.machine.next_action(&mut || CommandId(0)), Some(Action::Fail(CommandId(1))));
    let action = test.machine.next_action(&mut || CommandId(0));
    assert!(matches!(action, Some(Action::Send(CommandId(2), _))), "{action:?}");
}

/// Sends a read into the program's memory that does not end.
fn reading(machine: &mut Machine, id: u64, queue: u64, target: u64, waits: &[CommandId]) {
    let command = Submit {
        id: CommandId(id),
        queue: QueueId(queue),
        in_order: true,
        context: CONTEXT,
        place: 0,
        waits,
        sync: None,
        uses: &[],
        reads_host: None,
        writes_host: Some(HostShape::linear(target, 64)),
        gate: None,
    };
    let verdict = machine.submit(&command, &mut || CommandId(0));
    assert!(matches!(verdict, Verdict::Send { is_tracked: true, .. }), "{verdict:?}");
    machine.sent(CommandId(id));
}

fn copy_in(queue: u64) -> InPlace {
    InPlace {
        queue: QueueId(queue),
        in_order: true,
        context: CONTEXT,
        is_idle: true,
        waits_ended: true,
    }
}

#[test]
fn the_host_copies_in_place_only_behind_the_reads_before_it() {
    let mut machine = Machine::default();
    reading(&mut machine, 1, 1, 0x1000, &[]);
    // A command of another queue waits for the read, and has ended as far as its own link tells.
    let behind = Submit {
        id: CommandId(2),
        queue: QueueId(2),
        in_order: true,
        context: CONTEXT,
        place: 0,
        waits: &[CommandId(1)],
        sync: None,
        uses: &[],
        reads_host: None,
        writes_host: None,
        gate: None,
    };
    let Verdict::Send { plan, .. } = machine.submit(&behind, &mut || CommandId(0)) else {
        panic!("held")
    };
    assert_eq!(plan.behind, [CommandId(1)], "its end is told after that of the read");
    assert!(!machine.may_copy(&copy_in(2)));
    machine.ended(CommandId(1), true);
    assert!(machine.may_copy(&copy_in(2)));
}

#[test]
fn a_write_that_fails_early_does_not_stand_for_those_before_it() {
    let (plain, failing, after) = (CommandId(1), CommandId(2), CommandId(3));
    let mut test = three_places(Machine::default());
    test.send(plain.0, 1, Access::Write);
    let mut send_behind = |id: CommandId, of: CommandId| {
        let verdict = test.submit(id.0, 1, &[of], Access::Write);
        assert!(matches!(verdict, Verdict::Send { .. }), "{verdict:?}");
        test.machine.sent(id);
    };
    send_behind(failing, CommandId(99));
    // This command waits only for the one before it, and so ends after that.
    send_behind(after, failing);
    let fetch = only_fetch(&test.send(4, 0, Access::Read));
    assert_eq!(fetch.source_waits, [plain, after]);
}

/// Returns a marker in another queue.
fn marker(id: u64, waits: &[CommandId]) -> Submit<'_> {
    Submit {
        id: CommandId(id),
        queue: QueueId(2),
        in_order: true,
        context: CONTEXT,
        place: 0,
        waits,
        sync: None,
        uses: &[],
        reads_host: None,
        writes_host: None,
        gate: None,
    }
}

#[test]
fn a_read_that_fails_early_does_not_stand_for_those_before_it() {
    let mut machine = Machine::default();
    reading(&mut machine, 1, 1, 0x1000, &[]);
    // The second read waits for a command that fails, and then ends before the first one.
    reading(&mut machine, 2, 1, 0x2000, &[CommandId(99)]);
    let mut send = |id, waits: &[CommandId]| {
        let verdict = machine.submit(&marker(id, waits), &mut || CommandId(0));
        let Verdict::Send { plan, .. } = verdict else { panic!("held") };
        plan.behind
    };
    send(3, &[CommandId(1)]);
    send(4, &[CommandId(2)]);
    assert_eq!(send(5, &[]), [CommandId(1), CommandId(2)]);
}

/// Checks that each case below fails on a machine without its rule.
#[cfg(feature = "planted")]
#[test]
fn the_cases_notice_when_their_rule_is_off() {
    use penstock_coherence::Rule;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    let without = |rule: Rule, case: &dyn Fn(Test)| {
        let test = three_places(Machine::without(rule));
        let noticed = catch_unwind(AssertUnwindSafe(|| case(test))).is_err();
        assert!(noticed, "{rule:?} is off, and nothing was noticed");
    };
    without(Rule::FailedArrivalIsNone, &|mut test| {
        test.send(1, 0, Access::Write);
        let fetch = only_fetch(&test.send(2, 1, Access::Read));
        test.machine.ended(fetch.arrival, false);
        _ = only_fetch(&test.send(3, 1, Access::Read));
    });
    without(Rule::DoubtTravelsOn, &|mut test| {
        test.send(1, 0, Access::Write);
        let first = only_fetch(&test.send(2, 1, Access::Read));
        assert!(test.send(3, 2, Access::Read).waits.contains(&first.arrival));
    });
    without(Rule::FailedOverwriteIsUndone, &|mut test| {
        test.send(1, 0, Access::Write);
        test.send(2, 1, Access::Overwrite);
        test.machine.ended(CommandId(2), false);
        assert_eq!(test.send(3, 0, Access::Read).fetches, []);
    });
    without(Rule::OverwriteAfterArrival, &|mut test| {
        test.send(1, 0, Access::Write);
        let fetch = only_fetch(&test.send(2, 1, Access::Read));
        assert!(test.send(3, 1, Access::Overwrite).ends.contains(&fetch.arrival));
    });
    without(Rule::FailedEventFails, &|mut test| {
        let event = CommandId(50);
        test.machine.client_event(event);
        _ = test.submit(1, 0, &[event], Access::Read);
        test.machine.ended(event, false);
        assert_eq!(
            test.machine.next_action(&mut || CommandId(0)),
            Some(Action::Fail(CommandId(1)))
        );
    });
    without(Rule::InPlaceAfterWritersBefore, &|mut test| {
        reading(&mut test.machine, 1, 1, 0x1000, &[]);
        assert!(!test.machine.may_copy(&copy_in(1)));
    });
}

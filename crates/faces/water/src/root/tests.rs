//! Tests of what the root reports of commands, without ranks that run them.

use super::*;
use crate::clock::Real;
use crate::command::DeviceId;

fn read(root: &mut Root, rank: Rank, waits: &[CommandId]) -> CommandId {
    let read = Command::Read { buffer: ObjectId(1), offset: 0, size: 4, address: 4096 };
    root.issue(waits.to_vec(), Request::new(DeviceId { rank, index: 0 }, read))
}

fn marker(root: &mut Root, rank: Rank, waits: &[CommandId]) -> CommandId {
    root.issue(waits.to_vec(), Request::new(DeviceId { rank, index: 0 }, Command::Marker))
}

fn ends(root: &mut Root, id: CommandId) {
    root.ended(CommandEnd { id, outcome: Ok(()), times: Times::default() });
}

/// A command on the buffer's rank waits only until the bytes have left. The end of the read says
/// more.
#[test]
fn what_came_after_a_read_has_not_ended_before_the_read() {
    let mut root = Root::new(2, Arc::new(Real::default()));
    let early = read(&mut root, 1, &[]);
    let next = marker(&mut root, 1, &[early]);
    let last = marker(&mut root, 1, &[next]);
    let other = marker(&mut root, 1, &[]);
    for id in [last, next, other] {
        ends(&mut root, id);
    }
    assert_eq!([early, next, last].map(|id| root.outcome(id).is_some()), [false; 3]);
    assert!(root.outcome(other).is_some(), "it waits for nothing that is late");
    ends(&mut root, early);
    assert_eq!([early, next, last].map(|id| root.outcome(id)), [const { Some(Ok(())) }; 3]);
    assert_eq!(root.outstanding(), 0);
}

#[test]
fn what_has_failed_is_told_at_once() {
    let mut root = Root::new(2, Arc::new(Real::default()));
    let early = read(&mut root, 1, &[]);
    let next = marker(&mut root, 1, &[early]);
    root.lost(1, "gone", "there");
    assert!(matches!(root.outcome(next), Some(Err(_))));
    assert!(matches!(root.outcome(early), Some(Err(_))));
}

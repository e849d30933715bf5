//! What goes at once, and what the helper thread does.

use std::os::unix::net::UnixStream;

use penstock_wire::calls::to_worker;

use super::*;
use crate::stream::Stream;

fn sender() -> (Sender, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let stream = Stream::from_fd(ours.into()).unwrap();
    (Sender::over_socket(Arc::new(Joint::new(stream, None, None))), theirs)
}

fn send(sender: &Sender) {
    sender.send(&to_worker::Flush { queue: Id::new(1) }, &[], &[]).unwrap();
}

/// Returns the state of the helper, and whether a call is in the batch.
fn look(sender: &Sender) -> (Helper, bool) {
    let state = sender.handle.0.state.lock();
    (state.helper, state.out.since().is_some())
}

#[test]
fn a_thread_that_flushes_itself_wakes_no_helper() {
    let (sender, _peer) = sender();
    let call = to_worker::Flush { queue: Id::new(1) };
    let header = <to_worker::Flush as Call>::header(0, 0).unwrap();
    sender.gather_head(&head(&header, &call, &[]), &[]).unwrap();
    assert!(look(&sender) == (Helper::None, true));
    sender.flush().unwrap();
    assert!(look(&sender) == (Helper::None, false));
}

#[test]
fn the_helper_sends_what_nobody_flushes_and_then_sleeps() {
    let (sender, _peer) = sender();
    send(&sender);
    let is_done = || look(&sender) == (Helper::Asleep, false);
    penstock_trial::wait_for("an empty batch with a helper asleep", is_done);
}

#[test]
fn every_thread_learns_the_first_reason_of_an_end() {
    let (sender, _peer) = sender();
    let joint = &sender.handle.0.joint;
    let lost = || LinkError::System {
        doing: "the connection has ended",
        source: std::io::Error::other("no route"),
    };
    assert!(matches!(joint.explained(LinkError::Closed), LinkError::Closed));
    assert_eq!(joint.end(lost()).to_string(), lost().to_string());
    assert_eq!(joint.end(LinkError::Vanished).to_string(), lost().to_string());
    let call = to_worker::Flush { queue: Id::new(1) };
    for told in [sender.check(), sender.check_peer(), sender.send(&call, &[], &[])] {
        assert_eq!(told.unwrap_err().to_string(), lost().to_string());
    }
}

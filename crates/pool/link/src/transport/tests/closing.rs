//! The end of a link, by either side.

use std::thread;
use std::time::Duration;

use penstock_wire::FrameError;

use super::support::{in_time, soon};
use super::{Way, bulk, ping, receive_number};
use crate::error::LinkError;
use crate::receiver::Received;
use crate::wait::Patience;

fn ends(result: Result<Received, LinkError>) -> bool {
    matches!(result, Err(LinkError::Closed | LinkError::System { .. }))
}

pub(crate) fn a_hang_up_wakes_both_ends(way: &Way) {
    for how in ["close", "drop"] {
        hang_up(way, how);
    }
}

fn hang_up(way: &Way, how: &str) {
    let ((sender, mut back), (reply, mut receiver)) = way.links();
    let blocked = sender.clone();
    thread::scope(|scope| {
        // One thread waits for a frame, one for the peer to read, one for the rest of a payload.
        let waits = scope.spawn(move || {
            assert!(ends(back.receive(Patience::Forever, &mut |_, _| Ok(()))));
        });
        let writes = scope.spawn(move || {
            assert!(blocked.send(&bulk(1), &[], &vec![0; 64 << 20]).is_err());
        });
        let served = receiver.receive(Patience::Until(soon()), &mut |_, payload| {
            payload.read(&mut [0; 1000])?;
            thread::sleep(Duration::from_millis(100));
            Err(FrameError::Broken)
        });
        assert!(served.is_err());
        if how == "close" {
            reply.close();
        }
        drop(reply);
        drop(receiver);
        in_time("a hang-up at both ends", || {
            for thread in [waits, writes] {
                thread.join().unwrap();
            }
        });
    });
}

pub(crate) fn a_hang_up_inside_a_payload_wakes_the_reader(way: &Way) {
    let ((sender, _back), (_reply, mut receiver)) = way.links();
    thread::scope(|scope| {
        scope.spawn(move || {
            // The pieces end early, which closes the link.
            let piece = vec![1; 100_000];
            let sent = sender.send_pieces(&bulk(1), &[], 1 << 30, &mut [&piece[..]].into_iter());
            assert!(matches!(sent, Err(LinkError::Pieces { given: 100_000, .. })), "{sent:?}");
            assert!(matches!(sender.send(&ping(1), &[], &[]), Err(LinkError::Closed)));
        });
        let served = in_time("a hang-up inside a payload", || {
            receiver.receive(Patience::Forever, &mut |_, payload| {
                payload.read(&mut vec![0; 100_000])?;
                assert_eq!(payload.read(&mut [0; 10]), Err(FrameError::Broken));
                Err(FrameError::Broken)
            })
        });
        assert!(ends(served));
    });
}

pub(crate) fn what_was_sent_before_a_hang_up_is_received(way: &Way) {
    let ((sender, back), (_reply, mut receiver)) = way.links();
    for number in 0..10 {
        sender.send(&ping(number), &[], &[]).unwrap();
    }
    sender.flush().unwrap();
    drop((sender, back));
    thread::sleep(Duration::from_millis(30));
    for number in 0..10 {
        assert_eq!(receive_number(&mut receiver), number);
    }
    assert!(ends(receiver.receive(Patience::Forever, &mut |_, _| Ok(()))));
}

pub(crate) fn an_error_of_the_handler_ends_the_receiver(way: &Way) {
    let ((sender, _back), (_reply, mut receiver)) = way.links();
    sender.send(&bulk(1), &[], &[0; 100]).unwrap();
    sender.send(&ping(1), &[], &[]).unwrap();
    sender.flush().unwrap();
    let served =
        receiver.receive(Patience::Until(soon()), &mut |_, _| Err(FrameError::BadPayload("test")));
    assert!(matches!(served, Err(LinkError::Frame(FrameError::BadPayload("test")))));
    assert!(ends(receiver.receive(Patience::Forever, &mut |_, _| Ok(()))));
}

pub(crate) fn a_forked_child_is_told_and_leaves_its_parent_alone(way: &Way) {
    let ((sender, mut back), (_reply, mut receiver)) = way.links();
    // SAFETY: the child uses the link, which refuses at once, allocates little, and ends with
    // _exit. No other thread of this test holds a lock that the child needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let sent = matches!(sender.send(&ping(66), &[], &[]), Err(LinkError::Forked));
        let tried = matches!(sender.try_send(&ping(66), &[], &[]), Err(LinkError::Forked));
        let flushed = matches!(sender.flush(), Err(LinkError::Forked));
        let received =
            matches!(back.receive(Patience::Forever, &mut |_, _| Ok(())), Err(LinkError::Forked));
        sender.close();
        drop((sender, back));
        // SAFETY: ends the child without running any code of the parent.
        unsafe { libc::_exit(i32::from(!(sent && tried && flushed && received))) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above; the pointer refers to a local.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0));
    sender.send(&ping(1), &[], &[]).unwrap();
    sender.flush().unwrap();
    assert_eq!(receive_number(&mut receiver), 1, "the child closed its parent's link");
}

//! The thread that notices the end of members and keeps the clock of kernels.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_link::{Stream, spawn_quiet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::HeapError;
use crate::frame::{FRAME_BYTES, Frame, REASON_BYTES_MAX};
use crate::state::MemberState;

/// Step of the kernels' clock. 1 % of the default bound of a wait would be 100 ms, and a tenth of
/// that costs almost nothing.
const TICK: Duration = Duration::from_millis(10);

/// Number of notes taken from one member before the turn of the others and the clock. A member
/// sends one note per abort.
const NOTES_PER_TURN: usize = 16;

/// Stack of the thread in bytes; the thread mostly makes system calls.
const STACK_BYTES: usize = 128 << 10;

/// Starts the thread. `streams` lead to the members that share memory, and carry only notes of
/// abort.
pub(crate) fn start(
    state: Arc<MemberState>,
    streams: Vec<(u32, Stream)>,
) -> Result<JoinHandle<()>, HeapError> {
    let members =
        streams.into_iter().map(|(member, stream)| WatchedMember::new(member, stream)).collect();
    let mut watcher = Watcher { state, members, told: None };
    spawn_quiet("ggas-watcher", STACK_BYTES, move || watcher.run())
        .map_err(HeapError::system("starting a thread"))
}

struct Watcher {
    state: Arc<MemberState>,
    members: Vec<WatchedMember>,
    /// Generation whose abort the other members know.
    told: Option<u64>,
}

struct WatchedMember {
    number: u32,
    stream: Stream,
    /// Received bytes of the current note.
    received: Vec<u8>,
    is_gone: bool,
}

impl WatchedMember {
    fn new(number: u32, stream: Stream) -> Self {
        Self { number, stream, received: Vec::new(), is_gone: false }
    }
}

impl Watcher {
    fn run(&mut self) {
        loop {
            // Cleared before the look: a closing thread sets its flag and then rings. A ring
            // cleared after the look would wake nobody.
            self.state.watcher.clear_if_rung();
            if self.state.is_closing() {
                break;
            }
            self.state.advance_clock();
            self.tell();
            for index in 0..self.members.len() {
                self.hear(index);
            }
            if self.sleep().is_err() {
                self.state.end("the system does not let this member watch the others");
                return;
            }
        }
        self.tell();
    }

    /// Tells the others of an abort, once.
    fn tell(&mut self) {
        let Some(note) = self.state.note_for_others(self.told) else { return };
        self.told = Some(note.generation);
        let (frame, text) = Frame::abort(note.generation, note.is_final, &note.reason);
        let header = frame.encode();
        for member in self.members.iter().filter(|member| !member.is_gone) {
            // The stream carries only notes, so a note fits. Other members see the stream close.
            _ = member.stream.send_now(&[IoSlice::new(&header), IoSlice::new(&text)]);
        }
    }

    fn hear(&mut self, index: usize) {
        let Some(member) = self.members.get_mut(index) else { return };
        if member.is_gone {
            return;
        }
        let mut bytes = [0; FRAME_BYTES + REASON_BYTES_MAX];
        // A note has a header and a text. What is left wakes the thread again at once.
        for _ in 0..2 * NOTES_PER_TURN {
            let wanted = Frame::missing(&member.received);
            match wanted
                .map(|wanted| member.stream.recv_now(bytes.get_mut(..wanted).unwrap_or_default()))
            {
                Ok(Ok(Some(got))) => {
                    member.received.extend_from_slice(bytes.get(..got).unwrap_or_default())
                }
                Ok(Ok(None)) => return,
                Ok(Err(_)) => {
                    member.is_gone = true;
                    let number = member.number;
                    self.state.end(&format!("member {number} has ended or left"));
                    return;
                }
                Err(_) => {
                    member.is_gone = true;
                    member.stream.shutdown();
                    let number = member.number;
                    self.state.end(&format!("member {number} sent an invalid note"));
                    return;
                }
            }
            if let Some(note) = Frame::whole_abort(&member.received) {
                member.received.clear();
                self.state.receive_note(&note);
            }
        }
    }

    fn sleep(&self) -> Result<(), Errno> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.state.watcher.as_fd(), PollFlags::IN)];
        let there = self.members.iter().filter(|member| !member.is_gone);
        fds.extend(
            there.map(|member| PollFd::new(&member.stream, PollFlags::IN | PollFlags::RDHUP)),
        );
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
        match poll(&mut fds, self.state.is_running().then_some(&tick)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

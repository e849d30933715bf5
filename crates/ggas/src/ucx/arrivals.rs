//! What has arrived from other members and has not been read yet.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::sys::{self, AmRecvParam};
use crate::state::lock;

/// Bytes of a message at most: half of what UCX sends over TCP in one piece, with headers, so that no message has to be put together.
pub(super) const MESSAGE_BYTES_MAX: usize = 32 << 10;

/// What a receiver tells a sender to put into each message, so that it knows it from a stranger's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    /// A secret of the two.
    pub(super) secret: [u8; 16],
    /// Which of the receiver's peers the sender is.
    pub(super) inbox: u32,
}

/// Bytes before a message's own: the label, and its number.
pub(super) const HEADER_BYTES: usize = 32;

impl Label {
    /// The header of a message with this number.
    pub(super) fn header(&self, number: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..16].copy_from_slice(&self.secret);
        bytes[16..20].copy_from_slice(&self.inbox.to_le_bytes());
        bytes[24..].copy_from_slice(&number.to_le_bytes());
        bytes
    }
}

/// What has arrived, by member.
#[derive(Default)]
pub(super) struct Arrivals {
    inboxes: Mutex<Vec<Inbox>>,
    /// Bytes of all messages that wait.
    held: AtomicUsize,
}

struct Inbox {
    secret: [u8; 16],
    /// The number of the next message.
    next: u64,
    messages: VecDeque<Message>,
    /// A message came that this member never sends: nothing after it counts.
    is_wrong: bool,
}

/// A message that UCX keeps for us.
pub(super) struct Message {
    pub(super) data: NonNull<u8>,
    length: usize,
    read: usize,
}

// SAFETY: the memory is UCX's, and ours alone until it is released, by whatever thread.
unsafe impl Send for Message {}

/// What is known of an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Messages that came.
    pub(super) count: u64,
    /// Some of them wait.
    pub(super) waits: bool,
    pub(super) is_wrong: bool,
}

/// UCX's handler of messages; its argument is an [`Arrivals`].
pub(super) extern "C" fn on_message(
    arg: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const AmRecvParam,
) -> sys::Status {
    // SAFETY: given with the handler, and lives until after the worker.
    let Some(arrivals) = (unsafe { arg.cast::<Arrivals>().as_ref() }) else { return sys::OK };
    if header_length != HEADER_BYTES || header.is_null() {
        return sys::OK;
    }
    // SAFETY: so many bytes of the message, for the time of this call.
    let header = unsafe { header.cast::<[u8; HEADER_BYTES]>().read_unaligned() };
    // SAFETY: UCX gives one with each message.
    let attributes = unsafe { param.as_ref() }.map_or(0, |param| param.recv_attr);
    let holds = attributes & sys::AM_RECV_ATTR_FLAG_DATA != 0;
    arrivals.take(&header, NonNull::new(data.cast()).filter(|_| holds), length)
}

impl Arrivals {
    /// A place for another member's messages, which carry this secret.
    pub(super) fn open(&self, secret: [u8; 16]) -> Label {
        let mut inboxes = lock(&self.inboxes);
        inboxes.push(Inbox { secret, next: 0, messages: VecDeque::new(), is_wrong: false });
        // One for each try of a member to join, so the number fits.
        Label { secret, inbox: u32::try_from(inboxes.len() - 1).unwrap_or(u32::MAX) }
    }

    /// Bytes that wait, of all members.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn known(&self, inbox: u32) -> Known {
        let inboxes = lock(&self.inboxes);
        let inbox = usize::try_from(inbox).ok().and_then(|inbox| inboxes.get(inbox));
        inbox.map_or(Known { count: 0, waits: false, is_wrong: true }, |inbox| Known {
            count: inbox.next,
            waits: !inbox.messages.is_empty(),
            is_wrong: inbox.is_wrong,
        })
    }

    /// Copies what has arrived in an inbox, in order, as much as there is room for. Messages that have been read go to `release`.
    pub(super) fn read(&self, inbox: u32, into: &mut [u8], release: &mut dyn FnMut(&Message)) -> usize {
        let mut inboxes = lock(&self.inboxes);
        let inbox = usize::try_from(inbox).ok().and_then(|inbox| inboxes.get_mut(inbox));
        let Some(inbox) = inbox else { return 0 };
        let mut total = 0;
        while let (Some(room), Some(message)) = (into.get_mut(total..), inbox.messages.front_mut()) {
            let length = room.len().min(message.length - message.read);
            if length == 0 {
                break;
            }
            // SAFETY: so many bytes of the message are left; UCX's memory and the caller's are apart.
            unsafe {
                let from = message.data.as_ptr().add(message.read);
                std::ptr::copy_nonoverlapping(from, room.as_mut_ptr(), length);
            }
            message.read += length;
            total += length;
            if message.read == message.length
                && let Some(message) = inbox.messages.pop_front()
            {
                self.held.fetch_sub(message.length, Ordering::Relaxed);
                release(&message);
            }
        }
        total
    }

    /// Gives all that waits to `release`.
    pub(super) fn forget(&self, release: &mut dyn FnMut(&Message)) {
        lock(&self.inboxes)
            .iter_mut()
            .flat_map(|inbox| inbox.messages.drain(..))
            .for_each(|message| release(&message));
    }

    /// A message has come; no `data`: it can not be kept. What is said to UCX: whether it is.
    fn take(&self, header: &[u8; HEADER_BYTES], data: Option<NonNull<u8>>, length: usize) -> sys::Status {
        let (label, number) = (&header[..20], &header[24..]);
        let inbox = <[u8; 4]>::try_from(&label[16..]).map_or(u32::MAX, u32::from_le_bytes);
        let number = <[u8; 8]>::try_from(number).map_or(u64::MAX, u64::from_le_bytes);
        let mut inboxes = lock(&self.inboxes);
        let inbox = usize::try_from(inbox).ok().and_then(|inbox| inboxes.get_mut(inbox));
        // A stranger's, who has found the port: it gets no answer, and changes nothing.
        let Some(inbox) = inbox.filter(|inbox| is_same(&inbox.secret, &label[..16])) else { return sys::OK };
        if inbox.is_wrong {
            return sys::OK;
        }
        if number != inbox.next || length > MESSAGE_BYTES_MAX || length > 0 && data.is_none() {
            inbox.is_wrong = true;
            return sys::OK;
        }
        inbox.next += 1;
        let Some(data) = data.filter(|_| length > 0) else { return sys::OK };
        self.held.fetch_add(length, Ordering::Relaxed);
        inbox.messages.push_back(Message { data, length, read: 0 });
        sys::IN_PROGRESS
    }
}

/// Compares in a time that does not tell where they differ.
fn is_same(one: &[u8; 16], other: &[u8]) -> bool {
    other.len() == one.len() && one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(secrets: &[[u8; 16]]) -> Arrivals {
        let inbox = |secret: &[u8; 16]| Inbox {
            secret: *secret,
            next: 0,
            messages: VecDeque::new(),
            is_wrong: false,
        };
        Arrivals { inboxes: Mutex::new(secrets.iter().map(inbox).collect()), held: AtomicUsize::new(0) }
    }

    #[test]
    fn a_message_without_the_secret_changes_nothing() {
        let of = arrivals(&[[1; 16], [2; 16]]);
        let mut bytes = [0_u8; 8];
        let data = NonNull::new(bytes.as_mut_ptr());
        for (secret, inbox) in [([2; 16], 0), ([0; 16], 0), ([1; 16], 1), ([1; 16], 2), ([1; 16], u32::MAX)] {
            let header = Label { secret, inbox }.header(0);
            assert_eq!(of.take(&header, data, 8), sys::OK);
        }
        let inboxes = lock(&of.inboxes);
        assert!(inboxes.iter().all(|inbox| inbox.next == 0 && !inbox.is_wrong && inbox.messages.is_empty()));
    }

    #[test]
    fn a_message_that_no_member_sends_ends_what_is_taken() {
        let mut bytes = [0_u8; 8];
        let data = NonNull::new(bytes.as_mut_ptr());
        let label = Label { secret: [1; 16], inbox: 0 };
        for (number, data, length) in [(1, data, 8), (0, data, MESSAGE_BYTES_MAX + 1), (0, None, 8)] {
            let of = arrivals(&[[1; 16]]);
            assert_eq!(of.take(&label.header(number), data, length), sys::OK);
            assert_eq!(of.take(&label.header(0), data, 8), sys::OK, "nothing after it counts");
            let inboxes = lock(&of.inboxes);
            assert!(inboxes[0].is_wrong && inboxes[0].messages.is_empty());
        }
    }

    #[test]
    fn messages_are_kept_in_their_order() {
        let of = arrivals(&[[1; 16]]);
        let mut bytes = [0_u8; 8];
        let data = NonNull::new(bytes.as_mut_ptr());
        let label = Label { secret: [1; 16], inbox: 0 };
        assert_eq!(of.take(&label.header(0), data, 0), sys::OK, "an empty one needs no keeping");
        assert_eq!(of.take(&label.header(1), data, 8), sys::IN_PROGRESS);
        assert_eq!(of.take(&label.header(1), data, 8), sys::OK, "the same once more");
        let inboxes = lock(&of.inboxes);
        assert_eq!((inboxes[0].next, inboxes[0].messages.len(), inboxes[0].is_wrong), (2, 1, true));
        assert_eq!(of.held.load(Ordering::Relaxed), 8);
    }
}

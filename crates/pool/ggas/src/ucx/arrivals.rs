//! Messages that have arrived from other members and have not been read yet.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use penstock_process::Lock;

use super::sys::{self, AmRecvParam};

/// Largest message in bytes: half of what UCX sends over TCP in one piece, with headers, so that no
/// message has to be reassembled.
pub(super) const MESSAGE_BYTES_MAX: usize = 32 << 10;

/// Label that a receiver makes a sender put into each message, to distinguish it from a stranger's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    /// A secret of the two members.
    pub(super) secret: [u8; 16],
    /// Index of the sender among the receiver's peers.
    pub(super) inbox: u32,
}

/// Bytes before a message's own bytes: the label and the message's number.
pub(super) const HEADER_BYTES: usize = 32;

impl Label {
    /// Returns the header of a message with this number.
    pub(super) fn header(&self, number: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..16].copy_from_slice(&self.secret);
        bytes[16..20].copy_from_slice(&self.inbox.to_le_bytes());
        bytes[24..].copy_from_slice(&number.to_le_bytes());
        bytes
    }
}

/// Arrived messages of all members.
#[derive(Default)]
pub(super) struct Arrivals {
    inboxes: Lock<Vec<Inbox>>,
    /// Total bytes of all waiting messages.
    held: AtomicUsize,
}

struct Inbox {
    secret: [u8; 16],
    /// Number of the next message.
    next: u64,
    messages: VecDeque<Message>,
    /// Target of bytes that come now, if no messages wait.
    target: Option<Target>,
    /// Whether a message came that no member sends; later messages are ignored.
    is_wrong: bool,
}

/// Buffer of a reader during one turn of UCX.
struct Target {
    place: NonNull<u8>,
    room: usize,
    filled: usize,
}

// SAFETY: set and used within one call of the reader, while only its thread is in UCX.
unsafe impl Send for Target {}

/// Message that waits for its reader.
pub(super) struct Message {
    bytes: MessageBytes,
    length: usize,
    read: usize,
}

/// Storage of a message's bytes.
enum MessageBytes {
    /// Memory of UCX that UCX holds for us.
    Kept(NonNull<u8>),
    /// Our own copy, if UCX does not hold its memory.
    Own(Box<[u8]>),
}

// SAFETY: memory that UCX holds for us is ours alone until any thread releases it.
unsafe impl Send for Message {}

impl Message {
    fn place(&self) -> *const u8 {
        match &self.bytes {
            MessageBytes::Kept(place) => place.as_ptr(),
            MessageBytes::Own(bytes) => bytes.as_ptr(),
        }
    }

    /// Returns the memory to give back to UCX.
    pub(super) fn kept(&self) -> Option<NonNull<u8>> {
        match self.bytes {
            MessageBytes::Kept(place) => Some(place),
            MessageBytes::Own(_) => None,
        }
    }
}

/// State of an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InboxStatus {
    /// Number of messages received.
    pub(super) count: u64,
    /// Whether some of them wait.
    pub(super) waits: bool,
    pub(super) is_wrong: bool,
}

/// Handler for UCX's messages; `arg` is an [`Arrivals`].
pub(super) extern "C" fn on_message(
    arg: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const AmRecvParam,
) -> sys::Status {
    // SAFETY: the pointer was given with the handler, and its target outlives the worker.
    let Some(arrivals) = (unsafe { arg.cast::<Arrivals>().as_ref() }) else { return sys::OK };
    if header_length != HEADER_BYTES || header.is_null() {
        return sys::OK;
    }
    // SAFETY: the message has `header_length` bytes of header during this call.
    let header = unsafe { header.cast::<[u8; HEADER_BYTES]>().read_unaligned() };
    // SAFETY: UCX passes one with each message.
    let attributes = unsafe { param.as_ref() }.map_or(0, |param| param.recv_attr);
    let holds = attributes & sys::AM_RECV_ATTR_FLAG_DATA != 0;
    // A rendezvous, which nobody requests, has no bytes.
    let data = NonNull::new(data.cast()).filter(|_| attributes & sys::AM_RECV_ATTR_FLAG_RNDV == 0);
    // SAFETY: `length` bytes of the message, valid during this call, and longer if UCX holds them.
    unsafe { arrivals.take(&header, data, length, holds) }
}

impl Arrivals {
    /// Makes an inbox for another member's messages, which carry this secret.
    pub(super) fn open(&self, secret: [u8; 16]) -> Label {
        let mut inboxes = self.inboxes.lock();
        inboxes.push(Inbox {
            secret,
            next: 0,
            messages: VecDeque::new(),
            target: None,
            is_wrong: false,
        });
        // One inbox for each attempt of a member to join, so the number fits.
        Label { secret, inbox: u32::try_from(inboxes.len() - 1).unwrap_or(u32::MAX) }
    }

    /// Returns the total bytes that wait.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn status(&self, inbox: u32) -> InboxStatus {
        let inboxes = self.inboxes.lock();
        let inbox = usize::try_from(inbox).ok().and_then(|inbox| inboxes.get(inbox));
        inbox.map_or(InboxStatus { count: 0, waits: false, is_wrong: true }, |inbox| InboxStatus {
            count: inbox.next,
            waits: !inbox.messages.is_empty(),
            is_wrong: inbox.is_wrong,
        })
    }

    /// Copies what has arrived in an inbox, in order, as far as there is room. Passes messages that
    /// have been read to `release`.
    pub(super) fn read(
        &self,
        inbox: u32,
        into: &mut [u8],
        release: &mut dyn FnMut(&Message),
    ) -> usize {
        let mut inboxes = self.inboxes.lock();
        let inbox = usize::try_from(inbox).ok().and_then(|inbox| inboxes.get_mut(inbox));
        let Some(inbox) = inbox else { return 0 };
        let mut total = 0;
        while let (Some(room), Some(message)) = (into.get_mut(total..), inbox.messages.front_mut())
        {
            let length = room.len().min(message.length - message.read);
            if length == 0 {
                break;
            }
            // SAFETY: `length` bytes of the message are left, apart from the caller's memory.
            unsafe {
                let from = message.place().add(message.read);
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

    /// Makes bytes that come until [`Arrivals::taken`] go directly to `into`, if no messages wait.
    ///
    /// # Safety
    /// Nothing else uses `into` until then.
    pub(super) unsafe fn aim(&self, inbox: u32, into: &mut [u8]) {
        let mut inboxes = self.inboxes.lock();
        let inbox = usize::try_from(inbox).ok().and_then(|inbox| inboxes.get_mut(inbox));
        if let Some(inbox) = inbox
            && let Some(place) = NonNull::new(into.as_mut_ptr())
        {
            inbox.target = Some(Target { place, room: into.len(), filled: 0 });
        }
    }

    /// Ends this and returns the number of bytes that came.
    pub(super) fn taken(&self, inbox: u32) -> usize {
        let mut inboxes = self.inboxes.lock();
        let inbox = usize::try_from(inbox).ok().and_then(|inbox| inboxes.get_mut(inbox));
        inbox.and_then(|inbox| inbox.target.take()).map_or(0, |target| target.filled)
    }

    /// Passes all waiting messages to `release`.
    pub(super) fn forget(&self, release: &mut dyn FnMut(&Message)) {
        self.inboxes
            .lock()
            .iter_mut()
            .flat_map(|inbox| inbox.messages.drain(..))
            .for_each(|message| release(&message));
    }

    /// Handles a message; without `data` it has no readable bytes. Tells UCX whether to hold them.
    ///
    /// # Safety
    /// `length` bytes lie at `data`, even after the call if UCX `holds` them.
    unsafe fn take(
        &self,
        header: &[u8; HEADER_BYTES],
        data: Option<NonNull<u8>>,
        length: usize,
        holds: bool,
    ) -> sys::Status {
        let (label, number) = (&header[..20], &header[24..]);
        let inbox = <[u8; 4]>::try_from(&label[16..]).map_or(u32::MAX, u32::from_le_bytes);
        let number = <[u8; 8]>::try_from(number).map_or(u64::MAX, u64::from_le_bytes);
        let mut inboxes = self.inboxes.lock();
        let inbox = usize::try_from(inbox).ok().and_then(|inbox| inboxes.get_mut(inbox));
        // A message of a stranger who found the port gets no answer and changes nothing.
        let Some(inbox) = inbox.filter(|inbox| is_same(&inbox.secret, &label[..16])) else {
            return sys::OK;
        };
        if inbox.is_wrong {
            return sys::OK;
        }
        if number != inbox.next || length > MESSAGE_BYTES_MAX || length > 0 && data.is_none() {
            inbox.is_wrong = true;
            return sys::OK;
        }
        inbox.next += 1;
        let Some(data) = data.filter(|_| length > 0) else { return sys::OK };
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr(), length) };
        let mut read = 0;
        if inbox.messages.is_empty()
            && let Some(target) = &mut inbox.target
        {
            read = length.min(target.room - target.filled);
            // SAFETY: `read` bytes of room are left, which the caller of `aim` guaranteed; UCX's
            // memory does not overlap them.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    data.as_ptr(),
                    target.place.as_ptr().add(target.filled),
                    read,
                );
            }
            target.filled += read;
        }
        if read == length {
            return sys::OK;
        }
        self.held.fetch_add(length, Ordering::Relaxed);
        let bytes = if holds { MessageBytes::Kept(data) } else { MessageBytes::Own(bytes.into()) };
        inbox.messages.push_back(Message { bytes, length, read });
        if holds { sys::IN_PROGRESS } else { sys::OK }
    }
}

/// Compares in constant time.
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
            target: None,
            is_wrong: false,
        };
        Arrivals {
            inboxes: Lock::new(secrets.iter().map(inbox).collect()),
            held: AtomicUsize::new(0),
        }
    }

    fn take(
        of: &Arrivals,
        header: &[u8; HEADER_BYTES],
        data: Option<NonNull<u8>>,
        length: usize,
    ) -> sys::Status {
        // SAFETY: eight bytes of a test that outlive the call; a greater length is refused unread.
        unsafe { of.take(header, data, length, true) }
    }

    #[test]
    fn a_message_without_the_secret_changes_nothing() {
        let of = arrivals(&[[1; 16], [2; 16]]);
        let mut bytes = [0_u8; 8];
        let data = NonNull::new(bytes.as_mut_ptr());
        for (secret, inbox) in
            [([2; 16], 0), ([0; 16], 0), ([1; 16], 1), ([1; 16], 2), ([1; 16], u32::MAX)]
        {
            let header = Label { secret, inbox }.header(0);
            assert_eq!(take(&of, &header, data, 8), sys::OK);
        }
        let inboxes = of.inboxes.lock();
        assert!(
            inboxes
                .iter()
                .all(|inbox| inbox.next == 0 && !inbox.is_wrong && inbox.messages.is_empty())
        );
    }

    #[test]
    fn a_message_that_no_member_sends_ends_what_is_taken() {
        let mut bytes = [0_u8; 8];
        let data = NonNull::new(bytes.as_mut_ptr());
        let label = Label { secret: [1; 16], inbox: 0 };
        for (number, data, length) in [(1, data, 8), (0, data, MESSAGE_BYTES_MAX + 1), (0, None, 8)]
        {
            let of = arrivals(&[[1; 16]]);
            assert_eq!(take(&of, &label.header(number), data, length), sys::OK);
            assert_eq!(take(&of, &label.header(0), data, 8), sys::OK, "later messages are ignored");
            let inboxes = of.inboxes.lock();
            assert!(inboxes[0].is_wrong && inboxes[0].messages.is_empty());
        }
    }

    #[test]
    fn messages_are_kept_in_their_order() {
        let of = arrivals(&[[1; 16]]);
        let mut bytes = [0_u8; 8];
        let data = NonNull::new(bytes.as_mut_ptr());
        let label = Label { secret: [1; 16], inbox: 0 };
        assert_eq!(take(&of, &label.header(0), data, 0), sys::OK, "an empty message is not kept");
        assert_eq!(take(&of, &label.header(1), data, 8), sys::IN_PROGRESS);
        assert_eq!(
            take(&of, &label.header(1), data, 8),
            sys::OK,
            "the same message again is refused"
        );
        let inboxes = of.inboxes.lock();
        assert_eq!((inboxes[0].next, inboxes[0].messages.len(), inboxes[0].is_wrong), (2, 1, true));
        assert_eq!(of.held.load(Ordering::Relaxed), 8);
    }

    #[test]
    fn bytes_go_straight_to_a_reader_that_waits_and_the_rest_is_kept() {
        let label = Label { secret: [1; 16], inbox: 0 };
        for holds in [true, false] {
            let of = arrivals(&[[1; 16]]);
            let mut bytes = *b"01234567";
            let data = NonNull::new(bytes.as_mut_ptr());
            let mut into = [0; 12];
            // SAFETY: nothing else uses it.
            unsafe { of.aim(0, &mut into) };
            for number in 0..3 {
                // SAFETY: eight bytes, which outlive the call.
                let said = unsafe { of.take(&label.header(number), data, 8, holds) };
                let is_kept = number > 0 && holds;
                assert_eq!(said, if is_kept { sys::IN_PROGRESS } else { sys::OK }, "{number}");
            }
            assert_eq!(of.taken(0), 12);
            assert_eq!(&into, b"012345670123");
            let (mut rest, mut released) = ([0; 64], 0);
            let got = of.read(0, &mut rest, &mut |message| {
                released += usize::from(message.kept().is_some())
            });
            assert_eq!(&rest[..got], b"456701234567");
            assert_eq!((released, of.held()), (if holds { 2 } else { 0 }, 0));
            assert_eq!(of.taken(0), 0, "bytes arrived without a reader");
        }
    }
}

//! The thread of each node that sends commands to its worker. It waits while the link has no room.

use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use penstock_client::{
    ArgValue, Context, Error, Event, Given, Heap, Memory, Node, Queue, Session, Target, Want,
};
use penstock_wire::{FrameError, Payload, Status};

use super::desk::Desk;
use super::gone;
use super::program::Made;
use crate::backend::Failure;
use crate::command::{CommandId, Range};
use crate::error::code;
use crate::transport::Span;

const CONTENT_UNDEFINED: u64 = 1 << 1;

/// A buffer, which is set once its creation has been sent.
pub(super) type Cell = Arc<OnceLock<Arc<Memory>>>;

/// One operation for a node.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) id: CommandId,
    pub(super) queue: Arc<Queue>,
    pub(super) act: Act,
    /// The operations that it runs after. All were sent before it.
    pub(super) waits: Vec<Arc<Issue>>,
    pub(super) issue: Arc<Issue>,
}

/// What an order does.
#[derive(Debug)]
pub(super) enum Act {
    Create {
        memory: Cell,
        size: u64,
        flags: u64,
    },
    ReleaseBuffer(Cell),
    ReleaseKernel(Arc<Made>),
    Run {
        made: Arc<Made>,
        range: Range,
        args: Vec<Value>,
    },
    Write {
        memory: Cell,
        offset: u64,
        from: Span,
    },
    Read {
        memory: Cell,
        offset: u64,
        into: Span,
    },
    Copy {
        source: (Cell, u64),
        target: (Cell, u64),
        size: u64,
    },
    /// Like `Write`, to the heap part of the queue's device.
    WritePart {
        heap: Arc<Heap>,
        offset: u64,
        from: Span,
    },
    /// Like `Read`, from the heap part of the queue's device.
    ReadPart {
        heap: Arc<Heap>,
        offset: u64,
        into: Span,
    },
    /// Ends all waits of kernels over the heap.
    Abort {
        heap: Arc<Heap>,
        reason: String,
    },
    /// Drops the heap, which is no longer used.
    ReleaseHeap(Option<Arc<Heap>>),
}

#[derive(Debug)]
pub(super) enum Value {
    Bytes(Vec<u8>),
    Buffer(Cell),
    Local(u64),
    Heap(Arc<Heap>),
}

impl Act {
    /// Number of bytes that travel with the order.
    pub(super) fn bytes_sent(&self) -> u64 {
        match self {
            Self::Write { from, .. } | Self::WritePart { from, .. } => from.length as u64,
            _ => 0,
        }
    }

    /// Returns the heap over which its kernel talks to others.
    fn over(&self) -> Option<Arc<Heap>> {
        let Self::Run { args, .. } = self else { return None };
        args.iter()
            .find_map(|arg| if let Value::Heap(heap) = arg { Some(Arc::clone(heap)) } else { None })
    }

    /// Memory of the program that it writes to.
    pub(super) fn lands(&self) -> std::ops::Range<usize> {
        match self {
            Self::Read { into, .. } | Self::ReadPart { into, .. } => {
                into.start.addr()..into.start.addr().saturating_add(into.length)
            }
            _ => 0..0,
        }
    }

    /// The words after "cannot" in messages.
    const fn what(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create a buffer",
            Self::ReleaseBuffer(_) => "release a buffer",
            Self::ReleaseKernel(_) => "release a kernel",
            Self::Run { .. } => "run a kernel",
            Self::Write { .. } => "write a buffer",
            Self::Read { .. } => "read a buffer",
            Self::Copy { .. } => "copy a buffer",
            Self::WritePart { .. } => "write a part of a heap",
            Self::ReadPart { .. } => "read a part of a heap",
            Self::Abort { .. } => "abort a heap",
            Self::ReleaseHeap(_) => "release a heap",
        }
    }
}

/// The event of an operation, which exists once the operation has been sent. Later commands wait
/// for it.
#[derive(Debug, Default)]
pub(super) struct Issue(Mutex<Issued>);

#[derive(Debug, Default)]
struct Issued {
    event: Option<Event>,
    /// Whether to report when the event is set.
    tell: bool,
}

impl Issue {
    /// Returns the issue of an operation that failed before it could be sent.
    pub(super) fn failed(code: i32) -> Self {
        let event = Some(Event::ended(Status(code.min(-1))));
        Self(Mutex::new(Issued { event, tell: false }))
    }

    /// Whether the operation has been sent. If it has not, its sending will be reported.
    pub(super) fn is_sent_or_tell(&self) -> bool {
        let mut issued = self.lock();
        issued.tell |= issued.event.is_none();
        issued.event.is_some()
    }

    /// Sets the event of the operation. Returns whether to report it.
    fn is_sent(&self, event: Event) -> bool {
        let mut issued = self.lock();
        issued.event = Some(event);
        issued.tell
    }

    fn event(&self) -> Option<Event> {
        self.lock().event.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Issued> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Queues orders for the thread of a node.
#[derive(Debug)]
pub(super) struct Issuer {
    /// Bytes of writes sent early, see `EARLY_BYTES_MAX`.
    pub(super) early: u64,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Issuer {
    pub(super) fn start(
        node: &Arc<Node>,
        context: Arc<Context>,
        desk: Desk,
    ) -> std::io::Result<Self> {
        let (orders, taken) = mpsc::channel();
        let issuing = Issuing {
            node: node.index(),
            session: Arc::clone(node.session()),
            context,
            desk,
            orders: taken,
        };
        let thread = std::thread::Builder::new()
            .name(format!("wtr-node-{}", node.index()))
            .spawn(move || issuing.run())?;
        Ok(Self { early: 0, orders: Some(orders), thread: Some(thread) })
    }

    /// Queues an order. Returns `false` if the thread has ended.
    pub(super) fn give(&self, order: Order) -> bool {
        self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok())
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        // The thread ends when nobody can give it orders any more. All commands have ended, so it
        // does not wait.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// State of the thread.
struct Issuing {
    node: usize,
    session: Arc<Session>,
    context: Arc<Context>,
    desk: Desk,
    orders: Receiver<Order>,
}

impl Issuing {
    fn run(self) {
        loop {
            let order = match self.orders.try_recv() {
                Ok(order) => order,
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    // There are no more orders for now, so the worker must see all orders so far. A
                    // failed flush fails the commands, and they report it.
                    _ = self.session.flush();
                    let Ok(order) = self.orders.recv() else { return };
                    order
                }
            };
            self.issue(order);
        }
    }

    fn issue(&self, order: Order) {
        let Order { id, queue, act, waits, issue } = order;
        let waits: Vec<Event> = waits.iter().filter_map(|issue| issue.event()).collect();
        let what = act.what();
        let landing = Landing::of(&act);
        let over = act.over();
        let sent = match act {
            Act::ReleaseBuffer(memory) => {
                drop(memory);
                Ok(None)
            }
            Act::ReleaseKernel(made) => {
                drop(made);
                Ok(None)
            }
            Act::ReleaseHeap(heap) => {
                drop(heap);
                Ok(None)
            }
            act => self.enqueue(&queue, act, &waits, landing.clone()),
        };
        match sent {
            Ok(event) => {
                let is_awaited =
                    issue.is_sent(event.clone().unwrap_or_else(|| Event::ended(Status::OK)));
                if is_awaited {
                    self.desk.tell(super::News::Sent(id));
                }
                match event {
                    Some(event) => self.report(id, what, &event, landing, over),
                    None => self.desk.done(id),
                }
            }
            Err(failure) => {
                if let Some(landing) = landing {
                    landing.close();
                }
                // Commands that come after it must find that it has failed.
                _ = issue.is_sent(Event::ended(Status(failure.code.min(-1))));
                self.desk.failed(id, failure);
            }
        }
    }

    /// Reports the end of a command. For a kernel that talks to others the outcome says whether the
    /// heap was aborted.
    fn report(
        &self,
        id: CommandId,
        what: &'static str,
        event: &Event,
        landing: Option<Landing>,
        over: Option<Arc<Heap>>,
    ) {
        let (desk, node, timed) = (self.desk.clone(), self.node, event.clone());
        event.on_complete(move |status| {
            if let Some(landing) = landing {
                landing.close();
            }
            let Some(heap) = over else { return desk.ended(id, node, what, status, &timed) };
            let teller = desk.clone();
            let tell = move || {
                let aborted = heap.aborted();
                drop(heap);
                match aborted {
                    Some(reason) => teller.failed(id, super::heap::aborted(&reason)),
                    None => teller.ended(id, node, what, status, &timed),
                }
            };
            // The question waits for the workers, and this thread receives their answers.
            if std::thread::Builder::new().name("wtr-heap".into()).spawn(tell).is_err() {
                let message =
                    "cannot start a thread to check whether the heap was aborted".to_owned();
                desk.failed(
                    id,
                    Failure { code: code::OUT_OF_HOST_MEMORY, message, log: String::new() },
                );
            }
        });
    }

    fn enqueue(
        &self,
        queue: &Arc<Queue>,
        act: Act,
        waits: &[Event],
        landing: Option<Landing>,
    ) -> Result<Option<Event>, Failure> {
        let what = act.what();
        let bad = |error: Error| self.desk.refusal(self.node, what, &error);
        match act {
            Act::Create { memory, size, flags } => {
                let made = Memory::buffer(&self.context, flags, size, None).map_err(bad)?;
                _ = memory.set(Arc::clone(&made));
                // A creation has no answer. The migration tells whether there is memory, and
                // allocates it where it is used.
                queue.migrate(&[made], CONTENT_UNDEFINED, waits, Want::Event).map_err(bad)
            }
            Act::Run { made, range, args } => {
                let mut heaps = Vec::new();
                for (index, arg) in args.into_iter().enumerate() {
                    match arg {
                        Value::Bytes(bytes) => made.kernel.set_bytes(index, &bytes),
                        Value::Buffer(memory) => {
                            made.kernel
                                .set(index, ArgValue::Memory(Some(Arc::clone(there(&memory)?))));
                        }
                        Value::Local(size) => made.kernel.set(index, ArgValue::Local(size)),
                        Value::Heap(heap) => {
                            heaps.push(index);
                            made.kernel.set(index, ArgValue::Heap(heap));
                        }
                    }
                }
                let range = (range.dims, range.offset, range.global, range.local);
                let launched = queue.launch(&made.kernel, range, waits, Want::Event).map_err(bad);
                for index in heaps {
                    // The kernel may live long and must not keep the heap.
                    made.kernel.set(index, ArgValue::Memory(None));
                }
                launched
            }
            Act::Write { memory, offset, from } => {
                // SAFETY: the caller of `Backend::start` leaves these bytes unchanged until the
                // operation is reported.
                let bytes = unsafe { bytes_of(&from) };
                queue.write(there(&memory)?, offset, &Given(bytes), waits, Want::Event).map_err(bad)
            }
            Act::WritePart { heap, offset, from } => {
                // SAFETY: as above.
                let bytes = unsafe { bytes_of(&from) };
                heap.write(queue, offset, &Given(bytes), waits, Want::Event).map_err(bad)
            }
            Act::ReadPart { heap, offset, into } => {
                let range = penstock_client::Range { offset, size: into.length as u64 };
                heap.read(queue, range, Box::new(landing.unwrap_or_default()), waits).map_err(bad)
            }
            Act::Abort { heap, reason } => heap.abort(&reason).map(|()| None).map_err(bad),
            Act::Read { memory, offset, into } => {
                let range = penstock_client::Range { offset, size: into.length as u64 };
                let target = Box::new(landing.unwrap_or_default());
                queue.read(there(&memory)?, range, target, waits, Want::Event).map_err(bad)
            }
            Act::Copy { source, target, size } => {
                let (from, to) = (there(&source.0)?, there(&target.0)?);
                queue.copy((from, source.1), (to, target.1), size, waits, Want::Event).map_err(bad)
            }
            Act::ReleaseBuffer(_) | Act::ReleaseKernel(_) | Act::ReleaseHeap(_) => Ok(None),
        }
    }
}

/// Returns the bytes of a span.
///
/// # Safety
/// The bytes are valid and do not change while the result is used.
const unsafe fn bytes_of(span: &Span) -> &[u8] {
    if span.length == 0 {
        return &[];
    }
    // SAFETY: the caller guarantees it.
    unsafe { std::slice::from_raw_parts(span.start, span.length) }
}

fn there(memory: &Cell) -> Result<&Arc<Memory>, Failure> {
    memory.get().ok_or_else(|| gone(code::INVALID_MEM_OBJECT, "buffer"))
}

/// Target of a read, until the read is reported. After that the memory belongs to the program
/// again: the loss of a node ends a read while another thread may still receive its bytes.
#[derive(Clone, Debug, Default)]
struct Landing(Arc<Mutex<Option<Span>>>);

impl Landing {
    fn of(act: &Act) -> Option<Self> {
        match act {
            Act::Read { into, .. } | Act::ReadPart { into, .. } => {
                Some(Self(Arc::new(Mutex::new(Some(*into)))))
            }
            _ => None,
        }
    }

    /// Forbids further writes to the memory.
    fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Target for Landing {
    fn take(&mut self, offset: u64, payload: &mut dyn Payload) -> Result<(), FrameError> {
        // Locked while the bytes arrive.
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(span) = *open else { return Err(FrameError::Broken) };
        let range = usize::try_from(offset).ok().zip(usize::try_from(payload.left()).ok());
        let (start, count) = range.ok_or(FrameError::PayloadTooShort)?;
        // These are the peer's numbers. Nothing outside the read's own range is ever written.
        if start.checked_add(count).is_none_or(|end| end > span.length) {
            return Err(FrameError::BadPayload("ReadData"));
        }
        if count == 0 {
            return Ok(());
        }
        // SAFETY: the range is inside the span, which the caller of `Backend::start` keeps valid
        // until the operation is reported. The lock is held, so it has not been reported.
        let into = unsafe { std::slice::from_raw_parts_mut(span.start.wrapping_add(start), count) };
        payload.read(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A payload of this number of bytes, all 7.
    struct Sevens(u64);

    impl Payload for Sevens {
        fn left(&self) -> u64 {
            self.0
        }

        fn read(&mut self, into: &mut [u8]) -> Result<(), FrameError> {
            self.0 = self.0.checked_sub(into.len() as u64).ok_or(FrameError::PayloadTooShort)?;
            into.fill(7);
            Ok(())
        }
    }

    fn landing(bytes: &mut [u8]) -> Landing {
        Landing(Arc::new(Mutex::new(Some(Span { start: bytes.as_mut_ptr(), length: bytes.len() }))))
    }

    #[test]
    fn bytes_land_where_the_read_asked_for_them_and_nowhere_else() {
        let mut bytes = [0; 8];
        let mut landing = landing(&mut bytes);
        assert!(landing.take(2, &mut Sevens(3)).is_ok());
        assert!(landing.take(8, &mut Sevens(0)).is_ok());
        assert_eq!(landing.take(6, &mut Sevens(3)), Err(FrameError::BadPayload("ReadData")));
        assert_eq!(landing.take(u64::MAX, &mut Sevens(3)), Err(FrameError::BadPayload("ReadData")));
        assert_eq!(bytes, [0, 0, 7, 7, 7, 0, 0, 0]);
    }

    #[test]
    fn nothing_lands_once_the_read_was_reported() {
        let mut bytes = [0; 8];
        let landing = landing(&mut bytes);
        landing.close();
        assert_eq!(landing.clone().take(0, &mut Sevens(3)), Err(FrameError::Broken));
        assert_eq!(bytes, [0; 8]);
    }

    #[test]
    fn who_asks_before_an_operation_was_sent_is_told() {
        let issue = Issue::default();
        assert!(!issue.is_sent_or_tell());
        assert!(issue.is_sent(Event::ended(Status::OK)), "somebody asked");
        assert!(issue.is_sent_or_tell() && issue.event().is_some());
        let unasked = Issue::default();
        assert!(!unasked.is_sent(Event::ended(Status::OK)), "nobody asked");
    }
}

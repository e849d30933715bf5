//! A heap's end of UCX: one worker, as UCX calls it, and what has arrived from each member.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_process::Lock;

use super::arrivals::{Arrivals, HEADER_BYTES, MESSAGE_BYTES_MAX, Message, on_message};
use super::error::UcxError;
use super::library::UcxContext;
use super::sys::{self, AmHandlerParam, EpParams, RequestParam, WorkerParams};

/// Bytes of all members that have arrived and are unread. Beyond this limit UCX gets no turn, and
/// the senders feel back-pressure. One turn adds at most 16 messages per interface of UCX.
const HELD_BYTES_MAX: usize = 4 << 20;

/// Number of the only message handler.
const HANDLER: u32 = 0;

/// Connection to another member's engine.
#[derive(Debug)]
pub(super) struct EndPoint {
    handle: NonNull<c_void>,
    /// Set when UCX finds that the connection has failed.
    failed: Arc<AtomicBool>,
    /// Whether UCX notices failures, and lets the end point be closed at any time.
    is_watched: bool,
}

// SAFETY: used only under the lock of the engine, whose worker serves one thread after the other.
unsafe impl Send for EndPoint {}

impl EndPoint {
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// Message under way, in memory that UCX reads until the message has been sent.
pub(super) struct SendSlot {
    /// Header and bytes; they do not move when the slot is moved.
    bytes: Box<[u8]>,
    request: *mut c_void,
}

// SAFETY: a request is used only under the engine's lock.
unsafe impl Send for SendSlot {}

impl SendSlot {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; HEADER_BYTES + MESSAGE_BYTES_MAX].into(), request: null_mut() }
    }

    /// Returns the room for a message.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.bytes.get_mut(HEADER_BYTES..).unwrap_or_default()
    }
}

/// Memory that UCX may access until the worker is gone.
#[derive(Default)]
struct RetainedMemory {
    slots: Vec<SendSlot>,
    failed: Vec<Arc<AtomicBool>>,
}

/// One worker of UCX.
pub(crate) struct Engine {
    context: Arc<UcxContext>,
    worker: NonNull<c_void>,
    fd: c_int,
    address: Vec<u8>,
    arrivals: Box<Arrivals>,
    /// Held for each call on the worker. Locked before the inboxes.
    calls: Lock<RetainedMemory>,
}

// SAFETY: the worker is made for threads that use it one after the other, which `calls` ensures.
unsafe impl Send for Engine {}
// SAFETY: as above.
unsafe impl Sync for Engine {}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("address", &self.address.len()).finish_non_exhaustive()
    }
}

impl Engine {
    pub(super) fn new(context: &Arc<UcxContext>) -> Result<Self, UcxError> {
        let functions = context.functions;
        let params = WorkerParams {
            field_mask: sys::WORKER_PARAM_FIELD_THREAD_MODE | sys::WORKER_PARAM_FIELD_FLAGS,
            thread_mode: sys::THREAD_MODE_SERIALIZED,
            cpu_mask: [0; 16],
            events: 0,
            user_data: null_mut(),
            event_fd: 0,
            // A dying peer leaves requests behind; they are freed with the worker.
            flags: sys::WORKER_FLAG_IGNORE_REQUEST_LEAK,
        };
        let mut worker = null_mut();
        // SAFETY: the context is held; the other pointers refer to locals.
        let made = unsafe {
            (functions.worker_create)(context.handle.as_ptr(), &raw const params, &raw mut worker)
        };
        functions.check("making a worker", made)?;
        let nothing =
            UcxError::Call { doing: "making a worker", why: "UCX returned no handle".to_owned() };
        let mut engine = Self {
            context: context.clone(),
            worker: NonNull::new(worker).ok_or(nothing)?,
            fd: -1,
            address: Vec::new(),
            arrivals: Box::default(),
            calls: Lock::default(),
        };
        engine.prepare()?;
        Ok(engine)
    }

    fn prepare(&mut self) -> Result<(), UcxError> {
        let functions = self.context.functions;
        let handler = AmHandlerParam {
            field_mask: sys::AM_HANDLER_PARAM_FIELD_ID
                | sys::AM_HANDLER_PARAM_FIELD_FLAGS
                | sys::AM_HANDLER_PARAM_FIELD_CB
                | sys::AM_HANDLER_PARAM_FIELD_ARG,
            id: HANDLER,
            flags: sys::AM_FLAG_WHOLE_MSG,
            cb: on_message,
            arg: (&raw const *self.arrivals).cast_mut().cast(),
        };
        // SAFETY: the worker is ours; the handler's argument outlives the worker.
        let set =
            unsafe { (functions.set_am_recv_handler)(self.worker.as_ptr(), &raw const handler) };
        functions.check("setting its handler of messages", set)?;
        // SAFETY: the pointer refers to a field; the descriptor is the worker's.
        let told = unsafe { (functions.worker_get_efd)(self.worker.as_ptr(), &raw mut self.fd) };
        functions.check("asking for its descriptor", told)?;
        let (mut address, mut length) = (null_mut(), 0);
        // SAFETY: the pointers refer to locals.
        let told = unsafe {
            (functions.worker_get_address)(self.worker.as_ptr(), &raw mut address, &raw mut length)
        };
        functions.check("asking for its address", told)?;
        // SAFETY: `length` bytes of the worker, valid until they are released.
        self.address = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), length) }.to_vec();
        // SAFETY: from above, and not used again.
        unsafe { (functions.worker_release_address)(self.worker.as_ptr(), address) };
        Ok(())
    }

    /// Returns the address that others need to connect.
    pub(super) fn address(&self) -> &[u8] {
        &self.address
    }

    pub(super) fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Connects to another engine. If no common transport notices failures, `unwatched` allows a
    /// connection that does not.
    pub(super) fn connect(&self, address: &[u8], unwatched: bool) -> Result<EndPoint, UcxError> {
        let functions = self.context.functions;
        let failed = Arc::new(AtomicBool::new(false));
        let mut retained = self.calls.lock();
        retained.failed.push(failed.clone());
        let mut handle = null_mut();
        let mut try_mode = |err_mode: c_int| {
            let params = EpParams {
                field_mask: sys::EP_PARAM_FIELD_REMOTE_ADDRESS
                    | sys::EP_PARAM_FIELD_ERR_HANDLING_MODE
                    | sys::EP_PARAM_FIELD_ERR_HANDLER,
                address: address.as_ptr().cast(),
                err_mode,
                err_cb: on_failure,
                err_arg: Arc::as_ptr(&failed).cast_mut().cast(),
            };
            // SAFETY: the address is complete, as far as its sender can be trusted, who has proved
            // to have the pool's key. The handler's argument is kept until after the worker's end.
            unsafe {
                (functions.ep_create)(self.worker.as_ptr(), &raw const params, &raw mut handle)
            }
        };
        let mut made = try_mode(sys::ERR_HANDLING_MODE_PEER);
        let is_watched = !(made == sys::ERR_UNREACHABLE && unwatched);
        if !is_watched {
            made = try_mode(sys::ERR_HANDLING_MODE_NONE);
        }
        functions.check("making a way to another member", made)?;
        let handle = NonNull::new(handle);
        let nothing = UcxError::Call {
            doing: "making a way to another member",
            why: "UCX returned no handle".to_owned(),
        };
        Ok(EndPoint { handle: handle.ok_or(nothing)?, failed, is_watched })
    }

    /// Gives UCX a turn, unless too much is unread.
    pub(super) fn progress(&self) {
        if self.arrivals.held() >= HELD_BYTES_MAX {
            return;
        }
        let _retained = self.calls.lock();
        // SAFETY: only this thread uses our worker now. Handlers lock only the inboxes.
        unsafe { (self.context.functions.worker_progress)(self.worker.as_ptr()) };
    }

    /// Returns whether the descriptor will report what comes from now on. Otherwise something has
    /// already come, or is stuck.
    pub(super) fn arm(&self) -> bool {
        let _retained = self.calls.lock();
        // SAFETY: as above.
        unsafe { (self.context.functions.worker_arm)(self.worker.as_ptr()) == sys::OK }
    }

    /// Copies what has arrived in an inbox, in order, as far as there is room. If nothing has, UCX
    /// gets a turn, and what comes then goes directly to `into`.
    pub(super) fn read(&self, inbox: u32, into: &mut [u8]) -> usize {
        let _retained = self.calls.lock();
        let got = self.arrivals.read(inbox, into, &mut |message| self.release(message));
        if got > 0 || self.arrivals.held() >= HELD_BYTES_MAX {
            return got;
        }
        // SAFETY: only this call uses `into` until `taken` below.
        unsafe { self.arrivals.aim(inbox, into) };
        // SAFETY: only this thread uses our worker now. Handlers lock only the inboxes.
        unsafe { (self.context.functions.worker_progress)(self.worker.as_ptr()) };
        self.arrivals.taken(inbox)
    }

    /// Releases a message's memory. The lock `calls` is held.
    fn release(&self, message: &Message) {
        if let Some(retained) = message.kept() {
            // SAFETY: UCX kept it for the handler, and it is given back once.
            unsafe {
                (self.context.functions.am_data_release)(
                    self.worker.as_ptr(),
                    retained.as_ptr().cast(),
                )
            };
        }
    }

    /// Starts to send the first bytes of a slot. Fails if the connection has failed.
    pub(super) fn send(
        &self,
        to: &EndPoint,
        slot: &mut SendSlot,
        header: [u8; HEADER_BYTES],
        length: usize,
    ) -> Result<(), UcxError> {
        let (head, bytes) = slot.bytes.split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header);
        let bytes = bytes.get(..length).unwrap_or_default();
        let param = RequestParam::flags(sys::AM_SEND_FLAG_EAGER);
        let functions = self.context.functions;
        let _retained = self.calls.lock();
        // SAFETY: header and bytes stay in place until the request is done: a slot that is dropped
        // earlier goes to `keep`.
        slot.request = unsafe {
            (functions.am_send)(
                to.handle.as_ptr(),
                HANDLER,
                head.as_ptr().cast(),
                HEADER_BYTES,
                bytes.as_ptr().cast(),
                bytes.len(),
                &raw const param,
            )
        };
        match sys::error_of(slot.request) {
            None => Ok(()),
            Some(status) => {
                slot.request = null_mut();
                Err(UcxError::Call { doing: "sending", why: functions.text(status) })
            }
        }
    }

    /// Sends a message without bytes.
    pub(super) fn send_empty(
        &self,
        to: &EndPoint,
        header: [u8; HEADER_BYTES],
    ) -> Result<(), UcxError> {
        let mut slot = SendSlot::new();
        let sent = self.send(to, &mut slot, header, 0);
        self.keep(std::iter::once(slot));
        sent
    }

    /// Returns whether all of a slot's bytes have been sent or never will be.
    pub(super) fn is_done(&self, slot: &mut SendSlot) -> bool {
        if slot.request.is_null() {
            return true;
        }
        let functions = self.context.functions;
        let _retained = self.calls.lock();
        // SAFETY: the request has not been freed.
        if unsafe { (functions.request_check_status)(slot.request) } == sys::IN_PROGRESS {
            return false;
        }
        // SAFETY: the request is done, and not used again.
        unsafe { (functions.request_free)(slot.request) };
        slot.request = null_mut();
        true
    }

    /// Keeps slots that UCX may still access until the worker is gone.
    pub(super) fn keep(&self, slots: impl Iterator<Item = SendSlot>) {
        let mut retained = self.calls.lock();
        for mut slot in slots.filter(|slot| !slot.request.is_null()) {
            // SAFETY: the request is not yet freed nor used again; UCX drops it when it is done.
            unsafe { (self.context.functions.request_free)(slot.request) };
            slot.request = null_mut();
            retained.slots.push(slot);
        }
    }

    /// Stops waiting for the closing of a connection. Must be called for each: UCX ends the process
    /// if a worker is destroyed while such requests exist.
    pub(super) fn let_go(&self, closing: &mut ClosingEndPoint) {
        if !closing.0.is_null() {
            let _retained = self.calls.lock();
            // SAFETY: the request is not yet freed nor used again; UCX drops it when it is done.
            unsafe { (self.context.functions.request_free)(closing.0) };
            closing.0 = null_mut();
        }
    }

    /// Closes a connection. The result must be passed to [`Engine::let_go`].
    pub(super) fn close(&self, end_point: &EndPoint, at_once: bool) -> ClosingEndPoint {
        if !end_point.is_watched {
            // UCX requires the peer's participation for this; the connection ends with the worker.
            return ClosingEndPoint(null_mut());
        }
        let param = RequestParam::flags(if at_once { sys::EP_CLOSE_FLAG_FORCE } else { 0 });
        let _retained = self.calls.lock();
        // SAFETY: the end point is open; the caller does not use it again.
        let request = unsafe {
            (self.context.functions.ep_close)(end_point.handle.as_ptr(), &raw const param)
        };
        ClosingEndPoint(if sys::error_of(request).is_some() { null_mut() } else { request })
    }

    /// Returns whether the connection is closed.
    pub(super) fn is_closed(&self, closing: &mut ClosingEndPoint) -> bool {
        if closing.0.is_null() {
            return true;
        }
        let functions = self.context.functions;
        let _retained = self.calls.lock();
        // SAFETY: the request has not been freed.
        if unsafe { (functions.request_check_status)(closing.0) } == sys::IN_PROGRESS {
            return false;
        }
        // SAFETY: the request is done, and not used again.
        unsafe { (functions.request_free)(closing.0) };
        closing.0 = null_mut();
        true
    }

    /// Returns the transports of a connection as UCX prints them.
    pub(super) fn transports(&self, end_point: &EndPoint) -> String {
        let (mut text, mut length) = (null_mut(), 0);
        // SAFETY: the pointers refer to locals, which outlive the file.
        let file = unsafe { libc::open_memstream(&raw mut text, &raw mut length) };
        if file.is_null() {
            return String::new();
        }
        {
            let _retained = self.calls.lock();
            // SAFETY: the end point and the file are open.
            unsafe { (self.context.functions.ep_print_info)(end_point.handle.as_ptr(), file) };
        }
        // SAFETY: opened above, and not used again; now the text is complete.
        unsafe { libc::fclose(file) };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the file wrote `length` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
        let names = transports_in(&String::from_utf8_lossy(bytes));
        // SAFETY: the file allocated the text for its user to free.
        unsafe { libc::free(text.cast()) };
        names
    }
}

impl AsFd for Engine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the worker and is open as long as this value lives.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.arrivals.forget(&mut |message| self.release(message));
        // SAFETY: the worker has no other user. Memory that it may access is dropped later.
        unsafe { (self.context.functions.worker_destroy)(self.worker.as_ptr()) };
    }
}

/// Connection that is being closed.
#[must_use]
#[derive(Debug)]
pub(super) struct ClosingEndPoint(*mut c_void);

/// Returns the transports that carry messages from UCX's description of an end point. Its lines
/// look like `lane[0]:  1:tcp/eth0.0 md[1] -> ... am wireup`.
fn transports_in(text: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for line in text.lines().filter(|line| line.contains("lane[")) {
        let mut words =
            line.split_whitespace().skip_while(|word| !word.starts_with("lane[")).skip(1);
        let name = words.next().and_then(|word| word.split_once(':')?.1.split('/').next());
        if let Some(name) =
            name.filter(|name| words.any(|word| word == "am") && !names.contains(name))
        {
            names.push(name);
        }
    }
    if names.is_empty() { "unknown".to_owned() } else { names.join(", ") }
}

extern "C" fn on_failure(arg: *mut c_void, _: *mut c_void, _: sys::Status) {
    // SAFETY: the flag was given with the end point, and is kept until the worker is gone.
    if let Some(failed) = unsafe { arg.cast::<AtomicBool>().as_ref() } {
        failed.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_read_from_what_ucx_prints() {
        let text = "#\n#  lane[0]:  0:posix/memory.0 md[0] -> md[0]/posix/sysdev[255] am am_bw#0\n#  lane[1]:  4:tcp/eth0.0 md[1] -> md[1]/tcp/sysdev[255] rma_bw#0 wireup\n";
        assert_eq!(transports_in(text), "posix");
        assert_eq!(transports_in("nothing of the kind"), "unknown");
    }
}

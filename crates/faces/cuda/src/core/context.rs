//! Contexts: streams, a control block on the device, and the permanent error.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use penstock_client::Error;
use penstock_cuda_sys::driver::*;
use penstock_process::{Lock, SharedLock};

use super::address::DEVICES_MAX;
use super::control::Control;
use super::device::{Device, PerDevice};
use super::stream::{Stream, StreamKind, StreamOwner};
use super::{fault, platform};
use crate::edge::{CuResult, check_process, has_handle, new_number, of_error, publish};

pub(crate) struct Context {
    number: u64,
    pub(crate) device: Arc<Device>,
    pub(crate) is_primary: bool,
    flags: AtomicU32,
    /// The legacy default stream.
    pub(crate) legacy: Arc<Stream>,
    /// Streams that synchronise with the legacy default stream, including the threads' default
    /// streams.
    pub(crate) blocking: SharedLock<Vec<Arc<Stream>>>,
    /// Streams that do not synchronise with the legacy default stream.
    pub(crate) non_blocking: SharedLock<Vec<Arc<Stream>>>,
    /// Number of streams in both lists that the program has destroyed.
    pub(crate) destroyed_streams: AtomicUsize,
    /// For commands that need no order with the program's streams. Also in [`Self::non_blocking`].
    pub(super) unordered: OnceLock<Arc<Stream>>,
    /// Whether [`Self::blocking`] ever had a stream. If not, commands need no order.
    pub(crate) has_blocking: AtomicBool,
    /// Held while a command is ordered and sent.
    pub(crate) sending_in_order: Lock<()>,
    /// Code of the first failure: "the context ... must be destroyed".
    failure: AtomicU32,
    /// Number of creations and attachments minus the number of detachments.
    usage: AtomicU32,
    ended: AtomicBool,
    pub(crate) control: Control,
    limits: Lock<[u64; LIMITS]>,
}

has_handle!(Context: CUctx_st, CUDA_ERROR_INVALID_CONTEXT);

/// Number of limits that can be set.
const LIMITS: usize = 7;

/// Initial limits: the values of most NVIDIA devices.
const LIMIT_DEFAULTS: [u64; LIMITS] = [
    1024,    // CU_LIMIT_STACK_SIZE
    1 << 20, // CU_LIMIT_PRINTF_FIFO_SIZE
    8 << 20, // CU_LIMIT_MALLOC_HEAP_SIZE
    2,       // CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH
    2048,    // CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT
    64,      // CU_LIMIT_MAX_L2_FETCH_GRANULARITY
    0,       // CU_LIMIT_PERSISTING_L2_CACHE_SIZE
];

/// Contexts that exist now.
static CONTEXTS: PerDevice<Lock<Vec<Weak<Context>>>> =
    PerDevice::new([const { Lock::new(Vec::new()) }; DEVICES_MAX]);

thread_local! {
    /// The context stack of this thread; the last one is current.
    static STACK: RefCell<Vec<Option<Arc<Context>>>> = const { RefCell::new(Vec::new()) };
}

impl Context {
    /// Creates a context on a device. Waits until the device has answered.
    pub(crate) fn new(device: &Arc<Device>, flags: u32, is_primary: bool) -> CuResult<Arc<Self>> {
        if flags & !CU_CTX_FLAGS_MASK != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let number = new_number();
        let made =
            Control::new(device, number).and_then(|control| Ok((control, device.new_queue()?)));
        let (control, queue) = made.inspect_err(|_| device.free_of(number))?;
        let context = Arc::new_cyclic(|weak| Self {
            number,
            device: device.clone(),
            is_primary,
            flags: AtomicU32::new(flags),
            legacy: Stream::new(
                queue,
                StreamOwner { context: weak.clone(), number },
                StreamKind::Legacy,
                0,
                0,
            ),
            blocking: SharedLock::default(),
            non_blocking: SharedLock::default(),
            destroyed_streams: AtomicUsize::new(0),
            unordered: OnceLock::new(),
            has_blocking: AtomicBool::new(false),
            sending_in_order: Lock::default(),
            failure: AtomicU32::new(0),
            usage: AtomicU32::new(1),
            ended: AtomicBool::new(false),
            control,
            limits: Lock::new(LIMIT_DEFAULTS),
        });
        let begun = context.control.begin(&context.legacy.queue);
        if let Err(error) = begun {
            device.free_of(number);
            return Err(of_error(&error));
        }
        context.siblings().lock().push(Arc::downgrade(&context));
        publish(&context);
        Ok(context)
    }

    /// The contexts of the same device.
    fn siblings(&self) -> &'static Lock<Vec<Weak<Self>>> {
        CONTEXTS.of(&self.device)
    }

    /// Returns the contexts of a device that exist now.
    pub(crate) fn all_on(device: &Device) -> Vec<Arc<Self>> {
        let contexts = CONTEXTS.of(device).lock();
        contexts.iter().filter_map(Weak::upgrade).collect()
    }

    /// Removes the context from the list of its device, because it has ended.
    pub(super) fn leave_device(&self) {
        let mut contexts = self.siblings().lock();
        contexts.retain(|known| !std::ptr::eq(known.as_ptr(), self));
    }

    /// Makes all later calls fail. Returns false if they already do.
    pub(super) fn refuse_calls(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }

    /// Returns the current context of this thread.
    ///
    /// # Errors
    /// "CUDA_ERROR_INVALID_CONTEXT: ... there is no context bound to the current thread"
    #[inline]
    pub(crate) fn current() -> CuResult<Arc<Self>> {
        check_process()?;
        // Destructors of the program may run after those of the thread's variables. Then there is
        // no current context.
        let top = STACK.try_with(|stack| stack.borrow().last().cloned().flatten());
        let Some(context) = top.map_err(|_| CUDA_ERROR_DEINITIALIZED)? else {
            platform::devices()?;
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        };
        context.check_not_destroyed()?;
        Ok(context)
    }

    /// Returns the current context, if there is one, in any state.
    pub(crate) fn peek() -> Option<Arc<Self>> {
        STACK.try_with(|stack| stack.borrow().last().cloned().flatten()).ok().flatten()
    }

    pub(crate) fn push(context: Arc<Self>) {
        STACK.with_borrow_mut(|stack| stack.push(Some(context)));
    }

    pub(crate) fn pop() -> CuResult<Arc<Self>> {
        let top = STACK.with_borrow_mut(Vec::pop);
        top.flatten().ok_or(CUDA_ERROR_INVALID_CONTEXT)
    }

    /// Implements `cuCtxSetCurrent`: "If there is a CUDA context bound to the calling CPU thread,
    /// this replaces the top of the stack".
    pub(crate) fn set_current(context: Option<Arc<Self>>) {
        // The old context is dropped after the borrow of the stack has ended.
        let _old = STACK.try_with(|stack| {
            let mut stack = stack.borrow_mut();
            let old = stack.pop();
            if context.is_some() {
                stack.push(context);
            }
            old
        });
    }

    fn check_not_destroyed(&self) -> CuResult {
        if self.ended.load(Ordering::Acquire) {
            Err(CUDA_ERROR_CONTEXT_IS_DESTROYED)
        } else {
            Ok(())
        }
    }

    /// Checks that the context accepts commands.
    ///
    /// # Errors
    /// The permanent failure, or `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
    #[inline]
    pub(crate) fn check(&self) -> CuResult {
        self.check_not_destroyed()?;
        match self.failure.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(CUresult(code)),
        }
    }

    /// Records the failure of a command. Only the first one stays. Returns the permanent code.
    pub(crate) fn fail(&self, code: CUresult) -> CUresult {
        // If its device is lost because of a kernel, the reason counts.
        let fault = self.device.pool.fault().filter(|_| code == CUDA_ERROR_DEVICE_UNAVAILABLE);
        let told = fault.and_then(penstock_wire::cuda::code).map(CUresult);
        let (is_lost, code) = (code == CUDA_ERROR_DEVICE_UNAVAILABLE, told.unwrap_or(code));
        match self.failure.compare_exchange(0, code.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                if is_lost {
                    fault::report_open(&self.open_kernels());
                }
                code
            }
            Err(first) => CUresult(first),
        }
    }

    /// Returns the code for an error of the pool. All codes become permanent except invalid value,
    /// out of memory and out of resources.
    pub(crate) fn failed(&self, error: &Error) -> CUresult {
        let code = of_error(error);
        if check_process().is_err() {
            return CUDA_ERROR_NOT_INITIALIZED;
        }
        match code {
            CUDA_ERROR_INVALID_VALUE
            | CUDA_ERROR_OUT_OF_MEMORY
            | CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES => code,
            code => self.fail(code),
        }
    }

    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    pub(crate) fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    pub(crate) fn limit(&self, limit: u32) -> CuResult<u64> {
        let limits = self.limits.lock();
        limits.get(limit as usize).copied().ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)
    }

    pub(crate) fn set_limit(&self, limit: u32, value: u64) -> CuResult {
        if limit == CU_LIMIT_MALLOC_HEAP_SIZE {
            // NVIDIA's driver serves `malloc` there, and the daemon's context is shared.
            if self.device.is_native {
                return Err(CUDA_ERROR_UNSUPPORTED_LIMIT);
            }
            // "Heap size cannot be changed once a module load has occurred". Only modules that use
            // the heap make it.
            if self.control.has_malloc() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        if limit == CU_LIMIT_PRINTF_FIFO_SIZE && self.control.has_ring() {
            // "must not be performed after launching any kernel that uses the printf() device
            // system call - in such case CUDA_ERROR_INVALID_VALUE will be returned."
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut limits = self.limits.lock();
        *limits.get_mut(limit as usize).ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)? = value;
        Ok(())
    }

    /// Returns the context in the form in which its streams refer to it.
    pub(crate) fn as_owner(self: &Arc<Self>) -> StreamOwner {
        StreamOwner { context: Arc::downgrade(self), number: self.number }
    }

    pub(crate) fn attach(&self) {
        self.usage.fetch_add(1, Ordering::AcqRel);
    }

    /// Implements `cuCtxDetach`. Returns whether this was the last attachment.
    pub(crate) fn detach(&self) -> bool {
        self.usage.fetch_sub(1, Ordering::AcqRel) <= 1
    }

    /// Returns whether this is the thread's current context.
    pub(crate) fn is_current(&self) -> bool {
        Self::peek().is_some_and(|current| std::ptr::eq(&*current, self))
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("number", &self.number)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

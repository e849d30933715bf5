//! Contexts.

use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, RwLock};

use penstock_cl_sys::{
    CL_CONTEXT_PLATFORM, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, cl_context, cl_context_properties,
    cl_image_format,
};
use penstock_wire::status::Status;

use super::api::{self, function, owned};
use super::device::Device;
use super::event::OwnedEvent;
use super::platform::Platform;
use super::queue::{OwnedQueue, Queue};

owned!(
    /// One reference to a `cl_context`.
    OwnedContext(cl_context),
    clReleaseContext
);

/// Events of failed commands that a context keeps, see [`Context::keep_failed`]. A session has at most 65,536 events at a
/// time, and a failed command is behind few of them. With what PoCL keeps for an event this is 8 MiB.
const FAILED_EVENTS_MAX: usize = 1 << 14;

/// Image formats that one context may list. A driver that reports more has a defect.
const FORMATS_MAX: u32 = 1 << 14;

/// Devices of one platform that share objects. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    // Dropped in this order: the queues and events before their context.
    init_queue: OnceLock<Result<OwnedQueue, Status>>,
    transfer_queue: OnceLock<Result<Arc<OwnedQueue>, Status>>,
    failed: Mutex<VecDeque<OwnedEvent>>,
    raw: OwnedContext,
    id: u64,
    platform: Platform,
    devices: Vec<Device>,
    shares_host_memory: OnceLock<bool>,
    failing: RwLock<()>,
    user_event_failed: AtomicBool,
    open_user_events: AtomicUsize,
}

type Notify = Arc<dyn Fn(&str) + Send + Sync>;

/// Who is told of a context's errors, by the context's number. A driver may report an error while or after a context
/// goes away; it then finds nobody, not freed memory.
static NOTIFIED: LazyLock<Mutex<HashMap<u64, Notify>>> = LazyLock::new(Mutex::default);
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Context {
    /// A context over devices of one platform. `notify` is called in any thread with the driver's errors, never after
    /// the last clone was dropped.
    ///
    /// # Errors
    /// The driver's; `CL_INVALID_DEVICE` for a device of another platform.
    pub fn new(
        platform: &Platform,
        devices: &[Device],
        notify: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Self, Status> {
        if devices.is_empty() {
            return Err(Status::INVALID_VALUE);
        }
        if devices.iter().any(|device| device.platform().raw() != platform.raw()) {
            return Err(Status::INVALID_DEVICE);
        }
        let create = function!(clCreateContext)?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        notified().insert(id, Arc::from(notify));
        let properties = [
            CL_CONTEXT_PLATFORM as cl_context_properties,
            platform.raw().expose_provenance().cast_signed(),
            0,
        ];
        // Loaders look for the platform among their own; without one, the device says where to go.
        let start = if platform.is_cuda() { properties.len() - 1 } else { 0 };
        let handles: Vec<_> = devices.iter().map(Device::raw).collect();
        let number = api::count(handles.len())?;
        let data =
            std::ptr::without_provenance_mut::<c_void>(usize::try_from(id).unwrap_or_default());
        let mut code = 0;
        // SAFETY: the properties end with 0, there are as many devices as are named, and `told` takes a number for data.
        let handle = unsafe {
            create(
                &raw const properties[start],
                number,
                handles.as_ptr(),
                Some(told),
                data,
                &mut code,
            )
        };
        let raw = api::made(handle, code).inspect_err(|_| {
            notified().remove(&id);
        })?;
        Ok(Self(Arc::new(Inner {
            init_queue: OnceLock::new(),
            transfer_queue: OnceLock::new(),
            failed: Mutex::default(),
            raw: OwnedContext::take(raw),
            id,
            platform: platform.clone(),
            devices: devices.to_vec(),
            shares_host_memory: OnceLock::new(),
            failing: RwLock::new(()),
            user_event_failed: AtomicBool::new(false),
            open_user_events: AtomicUsize::new(0),
        })))
    }

    pub(super) fn raw(&self) -> cl_context {
        self.0.raw.raw()
    }

    /// A number that no other context of this process has or had. Events of one context can not be waited for in another.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Its platform.
    pub fn platform(&self) -> &Platform {
        &self.0.platform
    }

    /// Its devices.
    pub fn devices(&self) -> &[Device] {
        &self.0.devices
    }

    /// Whether all its devices share host memory: then buffers have home memory.
    pub fn shares_host_memory(&self) -> bool {
        *self
            .0
            .shares_host_memory
            .get_or_init(|| self.devices().iter().all(Device::shares_host_memory))
    }

    /// `clGetSupportedImageFormats`: channel order and channel type.
    ///
    /// # Errors
    /// The driver's.
    pub fn image_formats(&self, flags: u64, image_type: u32) -> Result<Vec<(u32, u32)>, Status> {
        let list = function!(clGetSupportedImageFormats)?;
        let mut count = 0;
        // SAFETY: no list is asked for, only how long it is.
        api::check(unsafe {
            list(self.raw(), flags, image_type, 0, std::ptr::null_mut(), &mut count)
        })?;
        let none = cl_image_format { image_channel_order: 0, image_channel_data_type: 0 };
        let mut formats = vec![none; count.min(FORMATS_MAX) as usize];
        if !formats.is_empty() {
            let places = api::count(formats.len())?;
            // SAFETY: the list has as many places as are named.
            api::check(unsafe {
                list(
                    self.raw(),
                    flags,
                    image_type,
                    places,
                    formats.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            })?;
        }
        Ok(formats
            .iter()
            .map(|format| (format.image_channel_order, format.image_channel_data_type))
            .collect())
    }

    /// Makes a queue on the first device for transfers that belong to no queue of the client, out of order where the
    /// device can, so that one transfer does not wait for another one.
    ///
    /// # Errors
    /// The driver's.
    pub fn transfer_queue(&self) -> Result<Queue, Status> {
        let device = self.devices().first().ok_or(Status::INVALID_DEVICE)?;
        let properties = device.queue_properties() & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
        if properties == 0 {
            // In one queue each transfer would wait for the one before.
            return Queue::new(self, device, properties, 0);
        }
        // One for all, which lives as long as the context: Intel's runtime waits for ever where a command that ends has the
        // last reference to its queue.
        let make = || OwnedQueue::create(self, device, properties, 0).map(Arc::new);
        let raw = self.0.transfer_queue.get_or_init(make).clone()?;
        Ok(Queue::over(raw, self, device, properties))
    }

    /// The queue on which objects get their first content. Whoever uses it waits for it.
    pub(super) fn init_queue(&self) -> Result<&OwnedQueue, Status> {
        let make = || {
            let device = self.devices().first().ok_or(Status::INVALID_DEVICE)?;
            OwnedQueue::create(self, device, 0, 0)
        };
        self.0.init_queue.get_or_init(make).as_ref().map_err(|&status| status)
    }

    /// Held for reading while a command is enqueued, and for writing while a user event fails: PoCL 3.1 never ends a
    /// command that is enqueued behind an event that has failed already.
    pub(super) fn failing(&self) -> &RwLock<()> {
        &self.0.failing
    }

    pub(super) fn note_user_event(&self) {
        self.0.open_user_events.fetch_add(1, Ordering::AcqRel);
    }

    /// A user event has been set, and all that it fails has failed.
    pub(super) fn note_user_event_ended(&self) {
        self.0.open_user_events.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether commands may fail, or have failed, because a user event does.
    pub(super) fn may_fail(&self) -> bool {
        self.0.open_user_events.load(Ordering::Acquire) > 0 || self.has_failed_user_event()
    }

    /// Keeps the event of a failed command while others may still tell it of their ends: the newest of them, and not longer
    /// than the context.
    pub(super) fn keep_failed(&self, event: OwnedEvent) {
        let mut failed = self.0.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = if failed.len() < FAILED_EVENTS_MAX { None } else { failed.pop_front() };
        failed.push_back(event);
        // The driver is not called with the lock.
        drop(failed);
        drop(oldest);
    }

    pub(super) fn note_user_event_failed(&self) {
        self.0.user_event_failed.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_failed_user_event(&self) -> bool {
        self.0.user_event_failed.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("id", &self.id())
            .field("devices", &self.0.devices.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        notified().remove(&self.id);
    }
}

fn notified() -> std::sync::MutexGuard<'static, HashMap<u64, Notify>> {
    NOTIFIED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `pfn_notify` of every context.
unsafe extern "C" fn told(
    message: *const c_char,
    _private: *const c_void,
    _size: usize,
    data: *mut c_void,
) {
    // A panic must not reach the driver's code; there is nobody to tell of it.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let notify = notified().get(&(data.addr() as u64)).cloned();
        if let (Some(notify), false) = (notify, message.is_null()) {
            // SAFETY: "errinfo is a pointer to an error string", and lives through the call.
            let text = unsafe { CStr::from_ptr(message) };
            notify(&text.to_string_lossy());
        }
    }));
}

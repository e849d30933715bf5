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

/// Most events of failed commands that a context keeps, see [`Context::keep_failed`]: 8 MiB in
/// PoCL. A session has at most 65,536 events, and a failed command is behind few of them.
const FAILED_EVENTS_MAX: usize = 1 << 14;

/// Most image formats that one context may list. A driver that reports more has a defect.
const FORMATS_MAX: u32 = 1 << 14;

/// A context: devices of one platform that share objects. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    // Dropped in this order: queues and events before their context.
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

/// Receivers of contexts' errors, by the context's id. A driver may report an error while or after
/// a context is freed; it then finds no receiver instead of freed memory.
static NOTIFIED: LazyLock<Mutex<HashMap<u64, Notify>>> = LazyLock::new(Mutex::default);
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Context {
    /// Makes a context over devices of one platform. `notify` gets the driver's errors, on any
    /// thread. It is not called once the last clone has been dropped.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_DEVICE` for a device of another platform.
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
        // Loaders only accept their own platforms; without a platform, the device decides.
        let start = if platform.is_cuda() { properties.len() - 1 } else { 0 };
        let handles: Vec<_> = devices.iter().map(Device::raw).collect();
        let number = api::count(handles.len())?;
        let data =
            std::ptr::without_provenance_mut::<c_void>(usize::try_from(id).unwrap_or_default());
        let mut code = 0;
        // SAFETY: the properties end with 0, the list has `number` devices, `told` expects a
        // number.
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

    /// Returns a number that is unique in this process. Wait lists cannot span contexts.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    pub fn platform(&self) -> &Platform {
        &self.0.platform
    }

    pub fn devices(&self) -> &[Device] {
        &self.0.devices
    }

    /// Returns whether all its devices share host memory; buffers then have home memory.
    pub fn shares_host_memory(&self) -> bool {
        *self
            .0
            .shares_host_memory
            .get_or_init(|| self.devices().iter().all(Device::shares_host_memory))
    }

    /// `clGetSupportedImageFormats`; returns pairs of channel order and channel type.
    ///
    /// # Errors
    /// The driver's error.
    pub fn image_formats(&self, flags: u64, image_type: u32) -> Result<Vec<(u32, u32)>, Status> {
        let list = function!(clGetSupportedImageFormats)?;
        let mut count = 0;
        // SAFETY: only the length of the list is asked for.
        api::check(unsafe {
            list(self.raw(), flags, image_type, 0, std::ptr::null_mut(), &mut count)
        })?;
        let none = cl_image_format { image_channel_order: 0, image_channel_data_type: 0 };
        let mut formats = vec![none; count.min(FORMATS_MAX) as usize];
        if !formats.is_empty() {
            let places = api::count(formats.len())?;
            // SAFETY: the list has `places` entries.
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

    /// Returns a queue on the first device for transfers that belong to no queue of the client. It
    /// is out of order if the device allows that, so that no transfer waits for another one.
    ///
    /// # Errors
    /// The driver's error.
    pub fn transfer_queue(&self) -> Result<Queue, Status> {
        let device = self.devices().first().ok_or(Status::INVALID_DEVICE)?;
        let properties = device.queue_properties() & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
        if properties == 0 {
            // In a shared in-order queue, transfers would wait for each other.
            return Queue::new(self, device, properties, 0);
        }
        // All transfers share one queue that lives as long as the context: Intel's runtime hangs if
        // a command that ends holds the last reference to its queue.
        let make = || OwnedQueue::create(self, device, properties, 0).map(Arc::new);
        let raw = self.0.transfer_queue.get_or_init(make).clone()?;
        Ok(Queue::over(raw, self, device, properties))
    }

    /// Returns the queue that sets the first content of objects. Its users wait for it.
    pub(super) fn init_queue(&self) -> Result<&OwnedQueue, Status> {
        let make = || {
            let device = self.devices().first().ok_or(Status::INVALID_DEVICE)?;
            OwnedQueue::create(self, device, 0, 0)
        };
        self.0.init_queue.get_or_init(make).as_ref().map_err(|&status| status)
    }

    /// Lock held for reading while a command is enqueued, and for writing while a user event fails:
    /// PoCL 3.1 never ends a command that is enqueued behind a failed event.
    pub(super) fn failing(&self) -> &RwLock<()> {
        &self.0.failing
    }

    pub(super) fn note_user_event(&self) {
        self.0.open_user_events.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a user event that was set, when everything that it fails has failed.
    pub(super) fn note_user_event_ended(&self) {
        self.0.open_user_events.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether user events may fail commands, or have done so.
    pub(super) fn may_fail(&self) -> bool {
        self.0.open_user_events.load(Ordering::Acquire) > 0 || self.has_failed_user_event()
    }

    /// Keeps a failed command's event while others may notify it: the newest, until the context is
    /// freed.
    pub(super) fn keep_failed(&self, event: OwnedEvent) {
        let mut failed = self.0.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = if failed.len() < FAILED_EVENTS_MAX { None } else { failed.pop_front() };
        failed.push_back(event);
        // The driver is called without the lock.
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

/// Receives the errors of every context (`pfn_notify`).
unsafe extern "C" fn told(
    message: *const c_char,
    _private: *const c_void,
    _size: usize,
    data: *mut c_void,
) {
    // A panic must not reach the driver's code; there is nobody to report it to.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let notify = notified().get(&(data.addr() as u64)).cloned();
        if let (Some(notify), false) = (notify, message.is_null()) {
            // SAFETY: "errinfo is a pointer to an error string", which lives through the call.
            let text = unsafe { CStr::from_ptr(message) };
            notify(&text.to_string_lossy());
        }
    }));
}

use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, RwLock};

use penstock_cl_sys::{
    CL_CONTEXT_PLATFORM, cl_context, cl_context_properties, cl_device_id, cl_image_format,
};
use penstock_process::Lock;
use penstock_wire::status::Status;

use super::api::{self, function};
use super::device::Device;
use super::owned::{OwnedContext, OwnedEvent};
use super::platform::Platform;
use super::retire::KeptQueue;
use crate::driver;
use crate::driver::Notify;

/// Most events of failed commands that a context keeps, see [`Context::keep_failed`]: 8 MiB in
/// PoCL. A session has at most 65,536 events, and a failed command is behind few of them.
const FAILED_EVENTS_MAX: usize = 1 << 14;

/// Most image formats that one context may list. A driver that reports more has a defect.
const FORMATS_MAX: u32 = 1 << 14;

/// A context. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Context(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    // Dropped in this order: queues and events before their context.
    init_queue: OnceLock<Result<KeptQueue, Status>>,
    transfer_queue: OnceLock<Result<Arc<KeptQueue>, Status>>,
    failed: Lock<VecDeque<OwnedEvent>>,
    raw: OwnedContext,
    id: u64,
    platform: Platform,
    devices: Vec<driver::Device>,
    failing: RwLock<()>,
    user_event_failed: AtomicBool,
    open_user_events: AtomicUsize,
}

type Receiver = Arc<dyn Fn(&str) + Send + Sync>;

/// Receivers of contexts' errors, by the context's id. A driver may report an error while or after
/// a context is freed; it then finds no receiver instead of freed memory.
static NOTIFIED: LazyLock<Lock<HashMap<u64, Receiver>>> = LazyLock::new(Lock::default);

impl Context {
    /// Makes a context over devices of the platform. `notify` gets the driver's errors, on any
    /// thread. It is not called once the last clone has been dropped.
    pub(super) fn new(
        platform: Platform,
        devices: &[driver::Device],
        notify: Notify,
    ) -> Result<Self, Status> {
        let create = function!(clCreateContext)?;
        let handles = handles(devices)?;
        let id = driver::next_context_id();
        notified().insert(id, Arc::from(notify));
        let properties = [
            CL_CONTEXT_PLATFORM as cl_context_properties,
            platform.raw().expose_provenance().cast_signed(),
            0,
        ];
        let number = api::count(handles.len())?;
        let data =
            std::ptr::without_provenance_mut::<c_void>(usize::try_from(id).unwrap_or_default());
        let mut code = 0;
        // SAFETY: the properties end with 0, the list has `number` devices, `told` expects a
        // number.
        let handle = unsafe {
            create(properties.as_ptr(), number, handles.as_ptr(), Some(told), data, &mut code)
        };
        let raw = api::made(handle, code).inspect_err(|_| {
            notified().remove(&id);
        })?;
        Ok(Self(Arc::new(Inner {
            init_queue: OnceLock::new(),
            transfer_queue: OnceLock::new(),
            failed: Lock::default(),
            raw: OwnedContext::take(raw),
            id,
            platform,
            devices: devices.to_vec(),
            failing: RwLock::new(()),
            user_event_failed: AtomicBool::new(false),
            open_user_events: AtomicUsize::new(0),
        })))
    }

    pub(super) fn raw(&self) -> cl_context {
        self.0.raw.raw()
    }

    /// Returns the reference to the driver's object.
    pub(super) fn owned(&self) -> &OwnedContext {
        &self.0.raw
    }

    pub(super) fn id(&self) -> u64 {
        self.0.id
    }

    pub(super) fn platform(&self) -> Platform {
        self.0.platform
    }

    pub(super) fn devices(&self) -> &[driver::Device] {
        &self.0.devices
    }

    /// `clGetSupportedImageFormats`; returns pairs of channel order and channel type.
    pub(super) fn formats(&self, flags: u64, image_type: u32) -> Result<Vec<(u32, u32)>, Status> {
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

    /// Returns the queue of all transfers. They share one queue that lives as long as the context:
    /// Intel's runtime hangs if a command that ends holds the last reference to its queue.
    pub(super) fn shared_queue(
        &self,
        device: &Device,
        properties: u64,
    ) -> Result<Arc<KeptQueue>, Status> {
        let make = || {
            KeptQueue::create(self.owned(), self.platform(), device, properties, 0).map(Arc::new)
        };
        self.0.transfer_queue.get_or_init(make).clone()
    }

    /// Returns the queue that sets the first content of objects. Its users wait for it.
    pub(super) fn init_queue(&self) -> Result<&KeptQueue, Status> {
        let make = || {
            let device = self.devices().first().ok_or(Status::INVALID_DEVICE)?;
            KeptQueue::create(self.owned(), self.platform(), device.driver()?, 0, 0)
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
        let mut failed = self.0.failed.lock();
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

/// Returns the handles of devices.
pub(super) fn handles(devices: &[driver::Device]) -> Result<Vec<cl_device_id>, Status> {
    devices.iter().map(|device| Ok(device.driver::<Device>()?.raw())).collect()
}

impl Drop for Inner {
    fn drop(&mut self) {
        notified().remove(&self.id);
    }
}

fn notified() -> penstock_process::Guard<'static, HashMap<u64, Receiver>> {
    NOTIFIED.lock()
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

//! OpenCL contexts.

use std::fmt;
use std::sync::{Arc, Weak};

use penstock_cl_sys::{_cl_context, CL_INVALID_CONTEXT, cl_context_properties, cl_int};
use penstock_client::Node;
use penstock_process::Lock;

use super::device::Device;
use super::queue::Queue;
use crate::edge::{Handle, Object, Ref};

/// Object behind a `cl_context`.
pub(crate) struct Context {
    pub(crate) pool: Arc<penstock_client::Context>,
    /// The devices that the program gave, without duplicates.
    pub(crate) devices: Vec<Ref<Device>>,
    /// The program's list with its final 0; empty for `NULL`.
    pub(crate) properties: Vec<cl_context_properties>,
    notify: Option<Arc<Notify>>,
    /// Default queues on devices, at most one per device.
    default_queues: Lock<Vec<Weak<Handle<Queue>>>>,
    destructors: Lock<Vec<Box<dyn FnOnce() + Send>>>,
    queues: Lock<Vec<Weak<Handle<Queue>>>>,
    /// Areas of shared virtual memory.
    pub(crate) svm: super::area::Areas,
    /// Cached answers about image formats.
    pub(crate) image_formats: super::image::FormatCache,
}

/// Callback `pfn_notify` of a context.
pub(crate) type Notify = dyn Fn(&str) + Send + Sync;

impl Object for Context {
    type Raw = _cl_context;
    const INVALID: cl_int = CL_INVALID_CONTEXT;
}

impl Context {
    pub(crate) fn new(
        pool: Arc<penstock_client::Context>,
        devices: Vec<Ref<Device>>,
        properties: Vec<cl_context_properties>,
        notify: Option<Arc<Notify>>,
    ) -> Self {
        if let Some(notify) = &notify {
            let mut notified = notified();
            notified.retain(|(_, notify)| notify.strong_count() > 0);
            notified.extend(
                pool.places().iter().map(|place| (place.id().get(), Arc::downgrade(notify))),
            );
        }
        Self {
            pool,
            devices,
            properties,
            notify,
            default_queues: Lock::default(),
            destructors: Lock::default(),
            queues: Lock::default(),
            svm: Default::default(),
            image_formats: Default::default(),
        }
    }

    /// Passes `text` to the program's `pfn_notify`, if it gave one.
    pub(crate) fn tell(&self, text: &str) {
        if let Some(notify) = &self.notify {
            notify(text);
        }
    }

    /// Returns whether `device` belongs to this context.
    pub(crate) fn has(&self, device: &Ref<Device>) -> bool {
        self.devices.iter().any(|known| Arc::ptr_eq(known, device))
    }

    /// Returns the default queue on a device.
    pub(crate) fn default_queue(&self, device: &Ref<Device>) -> Option<Ref<Queue>> {
        let queues = self.default_queues.lock();
        let mut living = queues.iter().filter_map(Weak::upgrade);
        living.find(|queue| Arc::ptr_eq(&queue.device, device))
    }

    /// Makes `queue` the default queue on its device.
    pub(crate) fn set_default_queue(&self, queue: &Ref<Queue>) {
        let mut queues = self.default_queues.lock();
        queues.retain(|known| known.strong_count() > 0);
        queues.push(Arc::downgrade(queue));
    }

    /// Adds a new queue of the context.
    pub(crate) fn add_queue(&self, queue: &Ref<Queue>) {
        let mut queues = self.queues.lock();
        queues.retain(|known| known.strong_count() > 0);
        queues.push(Arc::downgrade(queue));
    }

    /// Returns the context's host queues.
    pub(crate) fn queues(&self) -> Vec<Ref<Queue>> {
        let queues = self.queues.lock();
        queues.iter().filter_map(Weak::upgrade).filter(|queue| !queue.is_on_device()).collect()
    }

    /// Implements the function `clSetContextDestructorCallback`.
    pub(crate) fn on_destruction(&self, callback: Box<dyn FnOnce() + Send>) {
        self.destructors.lock().push(callback);
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let destructors = std::mem::take(self.destructors.get_mut());
        // "The registered callback functions are called in the reverse order in which they were
        // registered."
        for destructor in destructors.into_iter().rev() {
            destructor();
        }
    }
}

/// Returns the `pfn_notify` callbacks by the wire ids of their contexts, which a process never
/// reuses.
fn notified() -> std::sync::MutexGuard<'static, Vec<(u64, Weak<Notify>)>> {
    static NOTIFIED: Lock<Vec<(u64, Weak<Notify>)>> = Lock::new(Vec::new());
    NOTIFIED.lock()
}

/// Passes errors that drivers report on to the `pfn_notify` callbacks.
pub(crate) fn hear_errors(nodes: &[Arc<Node>]) {
    for node in nodes {
        node.session().on_context_error(|context, text| {
            let known = notified()
                .iter()
                .find(|(id, _)| *id == context.get())
                .map(|(_, notify)| notify.clone());
            if let Some(notify) = known.and_then(|notify| notify.upgrade()) {
                notify(text);
            }
        });
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("pool", &self.pool)
            .field("notifies", &self.notify.is_some())
            .finish_non_exhaustive()
    }
}

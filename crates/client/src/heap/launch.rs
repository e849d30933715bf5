//! Collective launches: one kernel on all devices of a heap, at the same time.
//!
//! Kernels that wait for each other must all run. So such a launch is refused where they could not, and starts only when
//! nothing before it is left in its queues, nor another collective launch at its places.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use penstock_wire::Status;

use super::{Heap, refused};
use crate::error::Result;
use crate::event::Event;
use crate::kernel::Kernel;
use crate::pool::Device;
use crate::queue::{Access, Queue, Want};

/// `CL_DEVICE_MAX_COMPUTE_UNITS`.
const MAX_COMPUTE_UNITS: u32 = 0x1002;
/// `CL_DEVICE_NAME`.
const NAME: u32 = 0x102B;
/// `CL_DEVICE_VERSION`.
const VERSION: u32 = 0x102F;

/// An index space: dimensions, offset, global size, local size.
pub type Space = (u32, [u64; 3], [u64; 3], Option<[u64; 3]>);

impl Heap {
    /// Starts `kernel` with its arguments as they are now on all devices of the heap; `queues` has one queue of each of them, in
    /// any order. The events are in that order.
    ///
    /// # Errors
    /// [`Error::Heap`] with a sentence that says what is too many or missing, where, and what to do: then nothing was started.
    /// When a node is lost.
    pub fn launch(
        &self,
        queues: &[&Queue],
        kernel: &Kernel,
        space: Space,
        waits: &[Event],
    ) -> Result<Vec<Event>> {
        let checked = self
            .check_queues(queues)
            .and_then(|()| self.check_kernel(kernel))
            .and_then(|()| self.check_resident(space));
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) =
            checked.as_ref().err().map(|error| error.to_string().into());
        checked?;
        // Held over the whole launch, so that another thread's does not come between.
        let mut collective = self.context.collective();
        collective.retain(|(_, event)| event.known_status().is_none());
        // Those in the same queues are before it anyway.
        let elsewhere = collective.iter().filter(|(of, _)| queues.iter().all(|queue| queue.id() != *of));
        let before = ends_of(elsewhere.map(|(_, event)| event));
        let waits: Vec<Event> = waits.iter().cloned().chain(before).collect();
        let mut events = Vec::with_capacity(queues.len());
        let started = self
            .gather(queues, &waits)
            .and_then(|ready| self.start_all(queues, kernel, space, &ready, &mut events));
        // Also of a launch that failed on its way: what has started is to be waited for.
        collective.extend(queues.iter().map(|queue| queue.id()).zip(events.iter().cloned()));
        drop(collective);
        match started {
            Ok(()) => Ok(events),
            Err(error) => {
                if !events.is_empty() {
                    // Those that run wait for those that do not.
                    _ = self.abort(&format!("a collective launch failed on its way: {error}"));
                }
                Err(error)
            }
        }
    }

    /// What all launches wait for, so that none starts long before the others: the ends of everything before them in their queues.
    fn gather(&self, queues: &[&Queue], waits: &[Event]) -> Result<Vec<Event>> {
        let has_ended = |event: &Event| event.known_status() == Some(Status::OK);
        if waits.iter().all(has_ended) && queues.iter().all(|queue| queue.progress().is_idle()) {
            return Ok(Vec::new());
        }
        let mut ready = Vec::with_capacity(queues.len() + waits.len());
        for queue in queues {
            // Without a wait list it waits for all commands before it.
            ready.extend(queue.marker(None, &[], Want::Event)?);
        }
        ready.extend_from_slice(waits);
        Ok(ready)
    }

    fn start_all(
        &self,
        queues: &[&Queue],
        kernel: &Kernel,
        space: Space,
        ready: &[Event],
        events: &mut Vec<Event>,
    ) -> Result<()> {
        for queue in queues {
            // A launch that uses a heap always has an event.
            let event = queue.launch(kernel, space, ready, Want::Event)?;
            events.extend(event);
        }
        // A kernel may wait for one that a batch still holds, and nobody need flush for it.
        for member in &self.members {
            member.flush()?;
        }
        Ok(())
    }

    fn check_queues(&self, queues: &[&Queue]) -> Result<()> {
        let count = self.pes.len();
        let mut of: Vec<Option<usize>> = vec![None; count];
        for (at, queue) in queues.iter().enumerate() {
            self.check_queue(queue)?;
            let Some(pe) = self.pe_of(queue.device()) else { continue };
            if let Some(Some(first)) = of.get(pe) {
                return Err(refused(&format!(
                    "queues {first} and {at} are both of PE {pe} ({}); give one queue for each of the {count} PEs",
                    described(queue.device())
                )));
            }
            if let Some(of) = of.get_mut(pe) {
                *of = Some(at);
            }
        }
        match of.iter().position(Option::is_none).and_then(|pe| Some((pe, self.pes.get(pe)?))) {
            None => Ok(()),
            Some((pe, missing)) => Err(refused(&format!(
                "PE {pe} ({}) has no queue among the {} given; a collective launch runs on all {count} PEs",
                described(&missing.device),
                queues.len()
            ))),
        }
    }

    fn check_kernel(&self, kernel: &Kernel) -> Result<()> {
        let (args, name) = (kernel.args(), &kernel.description().name);
        if !args.heaps().iter().any(|heap| std::ptr::eq(&raw const **heap, self)) {
            return Err(refused(&format!(
                "kernel {name} has not this heap among its arguments, so its work-items can not meet; set it first"
            )));
        }
        // Between places a buffer moves after its writer has ended, which here waits for who needs the buffer.
        let writes = || args.uses().iter().any(|(_, access)| *access != Access::Read);
        if !self.context.is_single() && writes() {
            return Err(refused(&format!(
                "kernel {name} has a buffer among its arguments that it may write, and devices of several platforms or nodes can not \
                 write one buffer at the same time; keep what it writes in the heap, or declare the pointer const"
            )));
        }
        Ok(())
    }

    /// Whether all work-groups can run at the same time.
    fn check_resident(&self, (dims, _, global, local): Space) -> Result<()> {
        let Some(local) = local else {
            return Err(refused(
                "a collective launch needs its local work size, because the number of work-groups must be known; give one",
            ));
        };
        let axes = || global.iter().zip(local).take(dims as usize);
        let groups = axes().map(|(global, local)| global.div_ceil(local.max(1))).fold(1, u64::saturating_mul);
        if groups == 0 {
            return Err(refused(
                "a collective launch of no work-items would leave its kernels nobody to meet; give a global size",
            ));
        }
        for (pe, of) in self.pes.iter().enumerate() {
            let units = resident_groups(&of.device);
            if groups > units {
                return Err(refused(&format!(
                    "{groups} work-groups on PE {pe} ({}), which runs {units} at a time for sure; use at most {units} work-groups, for \
                     example by a larger local work size",
                    described(&of.device)
                )));
            }
        }
        for place in 0..self.context.places().len() {
            self.check_place(place, groups)?;
        }
        Ok(())
    }

    /// CPU devices of one platform on one node run on the same cores, with one set of threads.
    fn check_place(&self, place: usize, groups: u64) -> Result<()> {
        let here = || self.pes.iter().filter(|pe| pe.place == place);
        let Some(units) = here().map(|pe| resident_groups(root(&pe.device))).max() else { return Ok(()) };
        let devices = here().count() as u64;
        if devices.saturating_mul(groups) <= units {
            return Ok(());
        }
        let host = here().next().map_or("", |pe| pe.device.host());
        Err(refused(&format!(
            "{devices} devices of one platform of node {host} with {groups} work-groups each, which run {units} work-groups at a time \
             together; use fewer work-groups, fewer of these devices, or a daemon for each"
        )))
    }
}

/// An event that ends well when all of these have ended, well or not; none where there are none. A wait list would fail with them.
fn ends_of<'a>(events: impl Iterator<Item = &'a Event>) -> Option<Event> {
    let events: Vec<&Event> = events.collect();
    if events.is_empty() {
        return None;
    }
    let (all, left) = (Event::user(), Arc::new(AtomicUsize::new(events.len())));
    for event in events {
        let (all, left) = (all.clone(), left.clone());
        event.on_complete(move |_| {
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                all.set_status(Status::OK);
            }
        });
    }
    Some(all)
}

fn described(device: &Device) -> String {
    format!("device {} of node {}", device.index(), device.host())
}

fn root(device: &Arc<Device>) -> &Arc<Device> {
    device.parent().map_or(device, root)
}

/// Work-groups that a device runs at the same time for sure. PoCL gives each of its threads one while there are no more than threads;
/// Intel's runtime was seen to run two work-groups on two units one after the other, so of other drivers one is all that is known.
fn resident_groups(device: &Device) -> u64 {
    let text = |name| String::from_utf8_lossy(device.info(name).unwrap_or_default()).to_ascii_lowercase();
    // With oneTBB PoCL leaves it to that what runs where.
    if !text(VERSION).contains("pocl") || text(NAME).contains("tbb") {
        return 1;
    }
    let bytes = device.info(MAX_COMPUTE_UNITS).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(1, |bytes| u32::from_ne_bytes(*bytes).max(1).into())
}

//! Collective launches: one kernel on all devices of a heap at the same time.
//!
//! Kernels that wait for each other must all run. So such a launch is refused if they could not,
//! and starts only when all earlier commands of its queues, and all earlier collective launches at
//! its places, have ended.

mod fit;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use penstock_wire::{IndexSpace, Status};

use crate::error::{Result, refused};
use crate::event::Event;
use crate::heap::{Heap, described};
use crate::kernel::Kernel;
use crate::order::{set_user_event, user_event};
use crate::queue::{Access, Queue, Want};

pub use fit::HeapLaunch;

impl Heap {
    /// Starts `kernel` with its present arguments on all devices of the heap. `queues` has one
    /// queue for each device, in any order. The returned events are in that order.
    ///
    /// # Errors
    /// `Error::Heap` with a sentence that says what is too large or missing, where, and what to
    /// do; then nothing was started. Or an error if a node is lost.
    pub fn launch(
        &self,
        queues: &[&Arc<Queue>],
        kernel: &Arc<Kernel>,
        space: IndexSpace,
        waits: &[Event],
    ) -> Result<Vec<Event>> {
        let launches: Vec<_> =
            queues.iter().map(|queue| HeapLaunch { queue, kernel, space }).collect();
        self.launch_each(&launches, waits)
    }

    /// As [`Heap::launch`], with a separate kernel and index space on each device, for devices in
    /// contexts of their own.
    ///
    /// # Errors
    /// As [`Heap::launch`].
    pub fn launch_each(&self, launches: &[HeapLaunch<'_>], waits: &[Event]) -> Result<Vec<Event>> {
        let queues: Vec<&Arc<Queue>> = launches.iter().map(|launch| launch.queue).collect();
        let queues = queues.as_slice();
        let checked = self
            .check_queues(queues)
            .and_then(|()| {
                launches.iter().try_for_each(|it| self.check_kernel(it.queue, it.kernel))
            })
            .and_then(|()| self.check_resident(launches));
        *self.refusal.lock() = checked.as_ref().err().map(|error| error.to_string().into());
        checked?;
        // Held over the whole launch, so that no launch of another thread comes between.
        let mut collective: Vec<_> =
            self.contexts.iter().map(|context| context.collective()).collect();
        for of in &mut collective {
            of.retain(|(_, event)| event.known_status().is_none());
        }
        // Launches in the same queues come first anyway.
        let running = collective.iter().flat_map(|of| of.iter());
        let elsewhere = running.filter(|(of, _)| queues.iter().all(|queue| queue.id() != *of));
        let before = ends_of(elsewhere.map(|(_, event)| event));
        let waits: Vec<Event> = waits.iter().cloned().chain(before).collect();
        let mut events = Vec::with_capacity(queues.len());
        let started = self
            .gather(queues, &waits)
            .and_then(|ready| self.start_all(launches, &ready, &mut events));
        // This includes a launch that failed half-way: later launches must wait for what has
        // started.
        for of in &mut collective {
            of.extend(queues.iter().map(|queue| queue.id()).zip(events.iter().cloned()));
        }
        drop(collective);
        match started {
            Ok(()) => Ok(events),
            Err(error) => {
                if !events.is_empty() {
                    // The kernels that run wait for those that do not.
                    _ = self.abort(&format!("a collective launch failed on its way: {error}"));
                }
                Err(error)
            }
        }
    }

    /// Returns the events that all launches wait for, so that none starts long before the others:
    /// the ends of all earlier commands in their queues, and `waits`.
    fn gather(&self, queues: &[&Arc<Queue>], waits: &[Event]) -> Result<Vec<Event>> {
        let has_ended = |event: &Event| event.known_status() == Some(Status::OK);
        if waits.iter().all(has_ended) && queues.iter().all(|queue| queue.progress().is_idle()) {
            return Ok(Vec::new());
        }
        let mut ready = Vec::with_capacity(queues.len() + waits.len());
        for queue in queues {
            // A marker without a wait list waits for all earlier commands.
            ready.extend(queue.marker(None, &[], Want::Event)?);
        }
        ready.extend_from_slice(waits);
        Ok(ready)
    }

    fn start_all(
        &self,
        launches: &[HeapLaunch<'_>],
        ready: &[Event],
        events: &mut Vec<Event>,
    ) -> Result<()> {
        for &HeapLaunch { queue, kernel, space } in launches {
            // A launch that uses a heap always has an event.
            let event = queue.launch(kernel, space, ready, Want::Event)?;
            events.extend(event);
        }
        // A kernel may wait for another one that is still in a batch, and the program need not
        // flush.
        for member in &self.members {
            member.flush()?;
        }
        Ok(())
    }

    fn check_queues(&self, queues: &[&Arc<Queue>]) -> Result<()> {
        let count = self.pes.len();
        let mut of: Vec<Option<usize>> = vec![None; count];
        for (at, queue) in queues.iter().enumerate() {
            self.check_queue(queue)?;
            let Some(pe) = self.pe_of(queue.device()) else { continue };
            if let Some(Some(first)) = of.get(pe) {
                return Err(refused(&format!(
                    "queues {first} and {at} are both of PE {pe} ({}); give one queue for each of \
                     the {count} PEs",
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
                "PE {pe} ({}) has no queue among the {} given; a collective launch runs on all \
                 {count} PEs",
                described(&missing.device),
                queues.len()
            ))),
        }
    }

    fn check_kernel(&self, queue: &Queue, kernel: &Kernel) -> Result<()> {
        let (args, name) = (kernel.args.lock(), &kernel.description().name);
        if !args.heaps().iter().any(|heap| std::ptr::eq(&raw const **heap, self)) {
            return Err(refused(&format!(
                "kernel {name} does not have this heap as an argument, so its work-items cannot \
                 meet; set it first"
            )));
        }
        // Between places a buffer moves only after its writer has ended, and here that writer waits
        // for the kernel that needs the buffer.
        let writes = || args.uses().iter().any(|(_, access)| *access != Access::Read);
        if !queue.context().is_single() && writes() {
            return Err(refused(&format!(
                "kernel {name} has a buffer as an argument that it may write, and devices of \
                 several platforms or nodes cannot write one buffer at the same time; keep what \
                 the kernel writes in the heap, or declare the pointer const"
            )));
        }
        Ok(())
    }
}

/// Returns an event that ends well when all of these have ended, whether well or not, or `None` if
/// there are none. As wait list entries they would make the launch fail with them.
fn ends_of<'a>(events: impl Iterator<Item = &'a Event>) -> Option<Event> {
    let events: Vec<&Event> = events.collect();
    if events.is_empty() {
        return None;
    }
    let (all, left) = (user_event(), Arc::new(AtomicUsize::new(events.len())));
    for event in events {
        let (all, left) = (all.clone(), left.clone());
        event.on_complete(move |_| {
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                set_user_event(&all, Status::OK);
            }
        });
    }
    Some(all)
}

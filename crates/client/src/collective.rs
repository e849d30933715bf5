//! Collective launches: one kernel on all devices of a heap, at the same time.
//!
//! Kernels that wait for each other must all run. So such a launch is refused where they could not, and starts only when
//! nothing before it is left in its queues, nor another collective launch at its places.

mod fit;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use penstock_wire::Status;

use crate::error::{Result, refused};
use crate::event::Event;
use crate::heap::{Heap, described};
use crate::kernel::Kernel;
use crate::launch::Space;
use crate::order::{set_user_event, user_event};
use crate::queue::{Access, Queue, Want};

pub use fit::HeapLaunch;

impl Heap {
    /// Starts `kernel` with its arguments as they are now on all devices of the heap; `queues` has one queue of each of them, in
    /// any order. The events are in that order.
    ///
    /// # Errors
    /// [`Error::Heap`] with a sentence that says what is too many or missing, where, and what to do: then nothing was started.
    /// When a node is lost.
    pub fn launch(
        &self,
        queues: &[&Arc<Queue>],
        kernel: &Arc<Kernel>,
        space: Space,
        waits: &[Event],
    ) -> Result<Vec<Event>> {
        let launches: Vec<_> = queues.iter().map(|queue| (*queue, kernel, space)).collect();
        self.launch_each(&launches, waits)
    }

    /// As [`Heap::launch`] with a kernel and a size of its own on each device, where those are in contexts of their own.
    ///
    /// # Errors
    /// As [`Heap::launch`].
    pub fn launch_each(&self, launches: &[HeapLaunch<'_>], waits: &[Event]) -> Result<Vec<Event>> {
        let queues: Vec<&Arc<Queue>> = launches.iter().map(|(queue, ..)| *queue).collect();
        let queues = queues.as_slice();
        let checked = self
            .check_queues(queues)
            .and_then(|()| {
                launches.iter().try_for_each(|(queue, kernel, _)| self.check_kernel(queue, kernel))
            })
            .and_then(|()| self.check_resident(launches));
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) =
            checked.as_ref().err().map(|error| error.to_string().into());
        checked?;
        // Held over the whole launch, so that another thread's does not come between.
        let mut collective: Vec<_> =
            self.contexts.iter().map(|context| context.collective()).collect();
        for of in &mut collective {
            of.retain(|(_, event)| event.known_status().is_none());
        }
        // Those in the same queues are before it anyway.
        let running = collective.iter().flat_map(|of| of.iter());
        let elsewhere = running.filter(|(of, _)| queues.iter().all(|queue| queue.id() != *of));
        let before = ends_of(elsewhere.map(|(_, event)| event));
        let waits: Vec<Event> = waits.iter().cloned().chain(before).collect();
        let mut events = Vec::with_capacity(queues.len());
        let started = self
            .gather(queues, &waits)
            .and_then(|ready| self.start_all(launches, &ready, &mut events));
        // Also of a launch that failed on its way: what has started is to be waited for.
        for of in &mut collective {
            of.extend(queues.iter().map(|queue| queue.id()).zip(events.iter().cloned()));
        }
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
    fn gather(&self, queues: &[&Arc<Queue>], waits: &[Event]) -> Result<Vec<Event>> {
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
        launches: &[HeapLaunch<'_>],
        ready: &[Event],
        events: &mut Vec<Event>,
    ) -> Result<()> {
        for &(queue, kernel, space) in launches {
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

    fn check_queues(&self, queues: &[&Arc<Queue>]) -> Result<()> {
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

    fn check_kernel(&self, queue: &Queue, kernel: &Kernel) -> Result<()> {
        let (args, name) = (kernel.args(), &kernel.description().name);
        if !args.heaps().iter().any(|heap| std::ptr::eq(&raw const **heap, self)) {
            return Err(refused(&format!(
                "kernel {name} has not this heap among its arguments, so its work-items can not meet; set it first"
            )));
        }
        // Between places a buffer moves after its writer has ended, which here waits for who needs the buffer.
        let writes = || args.uses().iter().any(|(_, access)| *access != Access::Read);
        if !queue.context().is_single() && writes() {
            return Err(refused(&format!(
                "kernel {name} has a buffer among its arguments that it may write, and devices of several platforms or nodes can not \
                 write one buffer at the same time; keep what it writes in the heap, or declare the pointer const"
            )));
        }
        Ok(())
    }
}

/// An event that ends well when all of these have ended, well or not; none where there are none. A wait list would fail with them.
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

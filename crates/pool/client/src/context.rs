//! Contexts: devices that share memory objects, over any nodes and platforms.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use penstock_coherence::{ContextId, NodeId};
use penstock_process::{Guard, Lock};
use penstock_wire::calls::to_worker;
use penstock_wire::id::kind;
use penstock_wire::{Id, U32, U64, frame};

use crate::error::Result;
use crate::event::Event;
use crate::order::order;
use crate::pool::Device;
use crate::session::Session;

/// A set of devices that share memory objects, programs and events.
pub struct Context {
    places: Vec<Place>,
    /// Collective launches of heaps that may still run. They run one after the other, because each
    /// must have its devices to itself.
    collective: Lock<Vec<(Id<kind::Queue>, Event)>>,
    name: ContextId,
    /// The queues of the context.
    queues: Lock<Vec<Weak<dyn Sibling>>>,
    /// Number of queues, so that it can be read without the lock.
    queue_count: AtomicUsize,
}

/// A queue, as another queue of the context sees it.
pub(crate) trait Sibling: Send + Sync {
    /// Makes commands of other queues wait for the blocking writes of this one that have returned
    /// but not ended.
    fn settle_all(self: Arc<Self>);
}

/// A platform of a node, with those of the context's devices that belong to it. It corresponds to
/// one context of a driver. The driver shares memory within a place, and the client moves it
/// between places.
pub struct Place {
    pub(crate) id: Id<kind::Context>,
    pub(crate) session: Arc<Session>,
    platform: u32,
    devices: Vec<Arc<Device>>,
}

impl Context {
    /// Makes a context over `devices`. If they are on several nodes, waits until the workers have
    /// tried to link, once per pair.
    ///
    /// # Errors
    /// If a node is lost. The first call that waits reports a driver's refusal.
    pub fn new(devices: &[Arc<Device>]) -> Result<Arc<Self>> {
        let mut places: Vec<Place> = Vec::new();
        for device in devices {
            match places.iter_mut().find(|place| place.is_for(device)) {
                Some(place) if place.devices.iter().any(|known| Arc::ptr_eq(known, device)) => {}
                Some(place) => place.devices.push(device.clone()),
                None => places.push(Place {
                    id: crate::ids::next_id(),
                    session: device.session().clone(),
                    platform: device.platform(),
                    devices: vec![device.clone()],
                }),
            }
        }
        for place in &places {
            let indices: Vec<u32> = place.devices.iter().map(|device| device.index()).collect();
            let call =
                to_worker::CreateContext { context: place.id, platform: U32::new(place.platform) };
            place.session.send(&call, &[], &frame::encode(&indices))?;
        }
        let mut sessions: Vec<_> = places.iter().map(|place| &place.session).collect();
        sessions.dedup_by_key(|session| session.node());
        if let [first, _, ..] = sessions.as_slice()
            && let Some(peers) = first.peers()
        {
            peers.link(&sessions);
        }
        Ok(Arc::new(Self {
            places,
            collective: Lock::default(),
            name: ContextId(crate::ids::next_id::<kind::Context>().get()),
            queues: Lock::default(),
            queue_count: AtomicUsize::new(0),
        }))
    }

    /// Returns the name in the state machine.
    pub(crate) fn name(&self) -> ContextId {
        self.name
    }

    pub(crate) fn tell_losses(&self) {
        if !self.is_single() {
            for place in self.places.iter().filter(|place| place.session.is_lost()) {
                order().lose(NodeId(place.session.number()));
            }
        }
    }

    /// Adds a new queue. Earlier queues are told, because the new queue's commands follow
    /// everything that the program takes for done.
    pub(crate) fn join(&self, queue: Weak<dyn Sibling>) {
        let before: Vec<_> = {
            let mut queues = self.queues.lock();
            queues.retain(|queue| queue.strong_count() > 0);
            queues.push(queue);
            self.queue_count.store(queues.len(), Ordering::Release);
            queues.iter().rev().skip(1).filter_map(Weak::upgrade).collect()
        };
        before.into_iter().for_each(Sibling::settle_all);
    }

    pub(crate) fn leave(&self) {
        let mut queues = self.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        self.queue_count.store(queues.len(), Ordering::Release);
    }

    /// Returns the open events of all blocking writes that have returned.
    pub(crate) fn unsettled(&self) -> Vec<Event> {
        // Several queues have told each other of their writes.
        if !self.has_several_queues() {
            let only = self.queues.lock().iter().find_map(Weak::upgrade);
            only.into_iter().for_each(Sibling::settle_all);
        }
        order().unsettled(self.name, None)
    }

    pub(crate) fn has_several_queues(&self) -> bool {
        self.queue_count.load(Ordering::Acquire) > 1
    }

    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Locks the collective launches that may still run. A thread that starts one holds this lock.
    pub(crate) fn collective(&self) -> Guard<'_, Vec<(Id<kind::Queue>, Event)>> {
        self.collective.lock()
    }

    /// Returns whether there is only one place, so that a driver alone keeps memory coherent.
    pub fn is_single(&self) -> bool {
        self.places.len() == 1
    }

    pub(crate) fn has_several_nodes(&self) -> bool {
        let mut nodes = self.places.iter().map(|place| place.session.number());
        let first = nodes.next();
        nodes.any(|node| Some(node) != first)
    }

    /// Returns the index of the place that `device` belongs to. A sub-device belongs to its
    /// parent's place.
    pub fn place_of(&self, device: &Device) -> Option<usize> {
        self.places.iter().position(|place| place.is_for(device))
    }

    /// `clGetSupportedImageFormats`. Returns the formats that all places support. Waits for the
    /// workers.
    ///
    /// # Errors
    /// The driver's code.
    pub fn image_formats(&self, flags: u64, image_type: u32) -> Result<Vec<(u32, u32)>> {
        let mut common: Option<Vec<(u32, u32)>> = None;
        for place in &self.places {
            let call = to_worker::ImageFormats {
                request: Id::NONE,
                context: place.id,
                flags: U64::new(flags),
                image_type: U32::new(image_type),
            };
            let formats = place.session.request(call, &[]).wait()?;
            match &mut common {
                None => common = Some(formats),
                Some(common) => common.retain(|format| formats.contains(format)),
            }
        }
        Ok(common.unwrap_or_default())
    }
}

impl Place {
    fn is_for(&self, device: &Device) -> bool {
        let here = self.session.node() == device.node() && self.platform == device.platform();
        // CUDA's driver does not share memory between devices.
        here && (!device.is_cuda()
            || self.devices.iter().any(|known| known.index() == device.index()))
    }

    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Returns the result of making an object here. The loss of the node is no failure of an object
    /// that other nodes have as well; commands at this place report it.
    pub(crate) fn unless_lost(&self, made: Result<()>) -> Result<()> {
        if self.session.is_lost() { Ok(()) } else { made }
    }

    /// Returns the id of this place's part of the context on the wire.
    pub fn id(&self) -> Id<kind::Context> {
        self.id
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        for place in &self.places {
            // A lost session has released everything.
            _ = place.session.send(&to_worker::ReleaseContext { context: place.id }, &[], &[]);
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("places", &self.places).finish()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("id", &self.id)
            .field("devices", &self.devices)
            .finish_non_exhaustive()
    }
}

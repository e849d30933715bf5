//! One member's side of a heap.

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_link::{Addresses, Stream};

use crate::error::HeapError;
use crate::join::{self, Joined, Over};
use crate::life::{COUNT_BITS, End};
use crate::plan::Plan;
use crate::segment::{Mapped, Parts};
use crate::state::{State, lock};
use crate::wake::Wake;
use crate::{monitor, proxy};

/// How long [`Heap::start`] waits for members that have not joined yet: as long as a hello may take, and twice that for a
/// loaded node.
const MEMBERS_MS_MAX: u64 = 30_000;

/// How long [`Heap::reset`] and dropping a heap wait for what kernels have sent to arrive.
const SETTLE_MS_MAX: u64 = 5_000;

/// Looks of a wait between two yields where each PE has a core: the answer of a peer comes within them, and a yield costs as much
/// as it takes.
const LOOKS_FREE: u32 = 512;
/// The same where PEs outnumber the cores, or a proxy is needed: who is awaited may be waiting for this core.
const LOOKS_CROWDED: u32 = 64;

/// One member's side of a heap.
///
/// Made with [`Heap::create`], connected to each other member with [`Heap::join`], running from [`Heap::start`] on. When it is
/// dropped, the other members' kernels are told that this member has left.
#[derive(Debug)]
pub struct Heap {
    state: Arc<State>,
    joining: Mutex<Joining>,
    joined: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// How far the members are.
#[derive(Debug, Default)]
struct Joining {
    /// What is known of each other member; `None` while one is in its handshake.
    members: BTreeMap<u32, Option<Joined>>,
    started: bool,
    /// Paths, by member, from the start on.
    mapped: BTreeMap<u32, bool>,
    /// What carries the proxy's bytes, by member, from the start on.
    over: BTreeMap<u32, Over>,
}

/// How a PE reaches another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// They are in one process, or it is the PE itself: by stores.
    Own,
    /// They are in two processes of one host: by stores.
    Shared,
    /// By the proxies of their members.
    Proxy,
}

impl Path {
    /// Its name, for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Shared => "shared",
            Self::Proxy => "proxy",
        }
    }
}

impl Heap {
    /// Makes this member's memory.
    ///
    /// # Errors
    /// When the plan is beyond a limit, or the system has no memory, descriptors or addresses.
    pub fn create(plan: Plan) -> Result<Arc<Self>, HeapError> {
        plan.check()?;
        let parts = Parts::create(&plan)?;
        let state = Arc::new(State::new(plan, parts, Wake::new()?, Wake::new()?));
        Ok(Arc::new(Self {
            state,
            joining: Mutex::default(),
            joined: Condvar::new(),
            threads: Mutex::default(),
        }))
    }

    /// What the heap was made of.
    pub fn plan(&self) -> &Plan {
        &self.state.plan
    }

    /// Shakes hands with another member over a stream that is connected to it and authenticated. Both sides call it, in any order
    /// and from any thread; the stream then belongs to the heap. Over a Unix socket the members share their memory.
    ///
    /// # Errors
    /// When the members do not agree, the stream fails, or the other side does not answer within the time for a hello.
    pub fn join(&self, member: u32, stream: Stream) -> Result<(), HeapError> {
        if !self.state.plan.others().contains(&member) {
            return Err(HeapError::NoSuchMember { member });
        }
        {
            let mut joining = lock(&self.joining);
            if joining.started {
                return Err(HeapError::StartedAlready);
            }
            if joining.members.contains_key(&member) {
                return Err(HeapError::JoinedTwice { member });
            }
            joining.members.insert(member, None);
        }
        let shaken = join::shake_hands(&self.state, member, stream);
        let mut joining = lock(&self.joining);
        match shaken {
            Ok(joined) => {
                joining.members.insert(member, Some(joined));
                self.joined.notify_all();
                Ok(())
            }
            Err(error) => {
                // It may be tried again over another stream.
                joining.members.remove(&member);
                Err(error)
            }
        }
    }

    /// Maps the views and starts the threads, when all members have joined.
    ///
    /// # Errors
    /// When a member does not join in time, or the system has no memory, addresses or threads.
    pub fn start(&self) -> Result<(), HeapError> {
        let others = self.state.plan.others();
        let deadline = Instant::now() + Duration::from_millis(MEMBERS_MS_MAX);
        let mut joining = lock(&self.joining);
        loop {
            if joining.started {
                return Err(HeapError::StartedAlready);
            }
            let missing = |member: &&u32| joining.members.get(*member).is_none_or(Option::is_none);
            let mut absent = others.iter().filter(missing);
            let Some(&first) = absent.next() else { break };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(HeapError::Missing { first, more: absent.count() });
            }
            joining = match self.joined.wait_timeout(joining, left) {
                Ok((joining, _)) => joining,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        let views = self.map_views(&joining.members)?;
        let members: Vec<(u32, Joined)> = std::mem::take(&mut joining.members)
            .into_iter()
            .filter_map(|(member, joined)| Some((member, joined?)))
            .collect();
        joining.mapped =
            members.iter().map(|(member, joined)| (*member, joined.memory().is_some())).collect();
        joining.started = true;
        self.state.publish(views);
        let (mut sharing, mut apart) = (Vec::new(), Vec::new());
        for (member, joined) in members {
            match joined {
                // Its memory is mapped: the descriptor is needed no more.
                Joined::Shares(stream, _) => sharing.push((member, stream)),
                Joined::Apart(carrier, over) => {
                    joining.over.insert(member, over);
                    apart.push((member, carrier));
                }
            }
        }
        // From here on the carriers alone have it.
        #[cfg(feature = "ucx")]
        lock(&self.state.ucx).take();
        let mut threads = lock(&self.threads);
        threads.push(monitor::start(self.state.clone(), sharing)?);
        if !apart.is_empty() {
            threads.push(proxy::start(self.state.clone(), apart)?);
        }
        Ok(())
    }

    /// What carries the proxy's bytes to another member; nothing for one that shares its memory, and before the start.
    pub fn over(&self, member: u32) -> Option<Over> {
        lock(&self.joining).over.get(&member).cloned()
    }

    /// Has the proxy's bytes carried by UCX to and from members that offer it as well; to be called before the first one joins. Where
    /// that fails the stream carries them, and [`Heap::over`] says why.
    #[cfg(feature = "ucx")]
    pub fn offer_ucx(&self) {
        lock(&self.state.ucx).make();
    }

    fn map_views(&self, members: &BTreeMap<u32, Option<Joined>>) -> Result<Vec<Mapped>, HeapError> {
        let State { plan, parts, .. } = &*self.state;
        let theirs = |member: u32| members.get(&member)?.as_ref()?.memory();
        let here = |member: u32| member == plan.me || theirs(member).is_some();
        let on_host = plan.members.iter().filter(|&&member| here(member)).count();
        let proxies = usize::from(on_host < plan.members.len());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // A proxy needs a core when a kernel waits for it.
        let looks = if proxies > 0 || on_host > cores { LOOKS_CROWDED } else { LOOKS_FREE };
        parts.pes().iter().map(|&pe| Mapped::new(plan, parts, pe, looks, &theirs)).collect()
    }

    /// What the kernels of an own PE get.
    ///
    /// # Errors
    /// When the heap has not started, or the PE is not this member's.
    pub fn view(&self, pe: u32) -> Result<View, HeapError> {
        let member = self.member_of(pe)?;
        let views = self.state.views.get().ok_or(HeapError::NotStarted)?;
        let view = views.iter().find(|view| view.pe == pe);
        let view = view.ok_or(HeapError::ForeignPe { pe, member })?;
        Ok(View { pe, memory: view.memory.clone(), pieces: view.pieces.clone() })
    }

    /// How one PE reaches another. Of other members' PEs this member knows the way to itself alone; among themselves they
    /// know, and where this one guesses it says [`Path::Own`] for PEs of one member and [`Path::Proxy`] else.
    ///
    /// # Errors
    /// When the heap has no such PE, or has not started.
    pub fn path(&self, from: u32, to: u32) -> Result<Path, HeapError> {
        let (from, to) = (self.member_of(from)?, self.member_of(to)?);
        if from == to {
            return Ok(Path::Own);
        }
        let joining = lock(&self.joining);
        if !joining.started {
            return Err(HeapError::NotStarted);
        }
        let other = if from == self.state.plan.me { to } else { from };
        let is_mapped = joining.mapped.get(&other).copied().unwrap_or(false);
        let knows = from == self.state.plan.me || to == self.state.plan.me;
        Ok(if knows && is_mapped { Path::Shared } else { Path::Proxy })
    }

    /// Copies user's bytes of an own PE out.
    ///
    /// # Errors
    /// When the PE is not this member's, or has not these bytes.
    pub fn read(&self, pe: u32, offset: u64, into: &mut [u8]) -> Result<(), HeapError> {
        let place = self.place(pe, offset, into.len())?;
        // SAFETY: so many bytes lie there, mapped as long as `self` lives; `into` is no part of them. Kernels that write them
        // meanwhile make them other plain bytes.
        unsafe { std::ptr::copy_nonoverlapping(place.as_ptr(), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies bytes to user's bytes of an own PE.
    ///
    /// # Errors
    /// As [`Heap::read`].
    pub fn write(&self, pe: u32, offset: u64, bytes: &[u8]) -> Result<(), HeapError> {
        let place = self.place(pe, offset, bytes.len())?;
        // SAFETY: as in `read`, the other way.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Marks a launch as in flight until the guard is dropped: meanwhile the clock of the heap's kernels runs, and the proxy looks
    /// for their work without sleeping. To be made before the launch.
    pub fn running(&self) -> Running {
        self.state.launch();
        Running(self.state.clone())
    }

    /// Ends all waits of all kernels of the heap, here and at the other members.
    pub fn abort(&self, reason: &str) {
        self.state.end(reason, false);
    }

    /// Why waits have ended, if they have.
    pub fn aborted(&self) -> Option<String> {
        self.state.ended().map(|end| end.reason)
    }

    /// Ends all waits as [`Heap::abort`], and no reset makes the heap usable again: this member is about to go.
    pub fn end(&self, reason: &str) {
        self.state.end(reason, true);
    }

    /// Makes the heap usable again after an abort or a timeout. All members must do it after all kernels have ended, and before one
    /// starts again, with the same `generation`: a number above that of each reset before, also of one that only some members did.
    /// The user's bytes stay as they are.
    ///
    /// # Errors
    /// When kernels run or their bytes are still under way; when a member has gone; when the generation is none that may follow.
    pub fn reset(&self, generation: u64) -> Result<(), HeapError> {
        if self.state.views.get().is_none() {
            return Err(HeapError::NotStarted);
        }
        let ended = |end: End| HeapError::Ended { reason: end.reason };
        if let Some(end) = self.state.ended().filter(|end| end.last) {
            return Err(ended(end));
        }
        let (min, max) = (self.state.generation() + 1, (1 << (u64::BITS - COUNT_BITS)) - 1);
        if !(min..=max).contains(&generation) {
            return Err(HeapError::Limit { what: "resets", given: generation, min, max });
        }
        if self.state.is_running() || !self.settle() {
            return Err(HeapError::Busy);
        }
        self.state.renew(generation).map_err(ended)
    }

    /// Waits until what the own kernels have sent has arrived.
    fn settle(&self) -> bool {
        self.state
            .settled
            .wait(&self.state.proxy, Instant::now() + Duration::from_millis(SETTLE_MS_MAX))
    }

    fn member_of(&self, pe: u32) -> Result<u32, HeapError> {
        let members = &self.state.plan.members;
        let member = usize::try_from(pe).ok().and_then(|pe| members.get(pe));
        member.copied().ok_or(HeapError::NoSuchPe { pe, count: self.state.plan.count() })
    }

    fn place(&self, pe: u32, offset: u64, length: usize) -> Result<NonNull<u8>, HeapError> {
        let member = self.member_of(pe)?;
        if member != self.state.plan.me {
            return Err(HeapError::ForeignPe { pe, member });
        }
        let (length, bytes) = (length as u64, self.state.plan.bytes);
        let place = self
            .state
            .has(offset, length)
            .then(|| self.state.parts.user_place(pe, offset, length))
            .flatten();
        place.ok_or(HeapError::Range { offset, length, bytes })
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if self.state.is_running() {
            self.state.end("the heap was released while kernels of it ran", true);
        } else if self.state.ended().is_none() {
            // What they do not take in time is lost with the heap.
            self.settle();
        }
        self.state.closing.store(true, std::sync::atomic::Ordering::Release);
        self.state.monitor.ring();
        self.state.proxy.ring();
        for thread in lock(&self.threads).drain(..) {
            // A thread that panicked has nothing left to do.
            _ = thread.join();
        }
    }
}

/// What the kernels of one PE get: its head and all parts. It stays mapped as long as a view, or the heap, lives.
#[derive(Clone, Debug)]
pub struct View {
    pe: u32,
    memory: Arc<Addresses>,
    pieces: Arc<[Range<usize>]>,
}

impl View {
    /// The PE whose view this is.
    pub fn pe(&self) -> u32 {
        self.pe
    }

    /// Where it begins, and how many bytes of addresses it has. Those of PEs that only the proxy reaches can not be touched.
    pub fn range(&self) -> (NonNull<u8>, usize) {
        (self.memory.base(), self.memory.bytes())
    }

    /// Which bytes of the range are mapped: the head, and each part that is not reached by the proxy. In order, whole pages.
    pub fn pieces(&self) -> &[Range<usize>] {
        &self.pieces
    }
}

/// A launch in flight: see [`Heap::running`].
#[derive(Debug)]
pub struct Running(Arc<State>);

impl Running {
    /// As [`Heap::abort`], where only the launch is at hand.
    pub fn abort(&self, reason: &str) {
        self.0.end(reason, false);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.landed();
    }
}

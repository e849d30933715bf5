//! One member's side of a heap.

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_link::{Addresses, Stream};
use penstock_process::{Lock, Signal};

use crate::error::HeapError;
use crate::join::{self, Joined, Over};
use crate::life::{COUNT_BITS, End};
use crate::plan::Plan;
use crate::segment::{Mapped, Parts};
use crate::state::State;
use crate::wake::Wake;
use crate::{monitor, proxy};

/// Time that [`Heap::start`] waits for members to join: the time of a hello, doubled for loaded
/// nodes.
const MEMBERS_MS_MAX: u64 = 30_000;

/// Time that [`Heap::reset`] and dropping a heap wait for bytes that kernels have sent.
const SETTLE_MS_MAX: u64 = 5_000;

/// Number of looks between two yields of a wait if each PE has a core. A peer answers within them,
/// and a yield costs as much as they do.
const LOOKS_FREE: u32 = 512;
/// The same if PEs outnumber the cores or a proxy is needed: the awaited thread may need this core.
const LOOKS_CROWDED: u32 = 64;

/// One member's side of a heap.
///
/// [`Heap::create`] makes it, [`Heap::join`] connects it to each other member, and [`Heap::start`]
/// starts it. Dropping it tells the other members' kernels that this member has left.
#[derive(Debug)]
pub struct Heap {
    state: Arc<State>,
    joining: Lock<Joining>,
    joined: Signal,
    threads: Lock<Vec<JoinHandle<()>>>,
}

/// Progress of the joining members.
#[derive(Debug, Default)]
struct Joining {
    /// Result for each other member; `None` during its handshake.
    members: BTreeMap<u32, Option<Joined>>,
    started: bool,
    /// From the start on: whether each member's memory is mapped.
    mapped: BTreeMap<u32, bool>,
    /// From the start on: what carries the proxy's bytes to each member.
    over: BTreeMap<u32, Over>,
}

/// How a PE reaches another PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// By stores; both PEs are in one process, or are the same PE.
    Own,
    /// By stores; the PEs are in two processes of one host.
    Shared,
    /// Through the proxies of their members.
    Proxy,
}

impl Path {
    /// Returns the name for tables.
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
    /// Fails if the plan exceeds a limit, or the system lacks memory, descriptors or addresses.
    pub fn create(plan: Plan) -> Result<Arc<Self>, HeapError> {
        plan.check()?;
        let parts = Parts::create(&plan)?;
        let state = Arc::new(State::new(plan, parts, Wake::new()?, Wake::new()?));
        Ok(Arc::new(Self {
            state,
            joining: Lock::default(),
            joined: Signal::new(),
            threads: Lock::default(),
        }))
    }

    /// Returns the heap's plan.
    pub fn plan(&self) -> &Plan {
        &self.state.plan
    }

    /// Performs the handshake with another member over a connected and authenticated stream. Both
    /// sides call it, in any order and from any thread; the heap then owns the stream. Over a Unix
    /// socket the members share their memory.
    ///
    /// # Errors
    /// Fails if the members disagree, the stream fails, or the peer exceeds the time for a hello.
    pub fn join(&self, member: u32, stream: Stream) -> Result<(), HeapError> {
        if !self.state.plan.others().contains(&member) {
            return Err(HeapError::NoSuchMember { member });
        }
        {
            let mut joining = self.joining.lock();
            if joining.started {
                return Err(HeapError::StartedAlready);
            }
            if joining.members.contains_key(&member) {
                return Err(HeapError::JoinedTwice { member });
            }
            joining.members.insert(member, None);
        }
        let shaken = join::shake_hands(&self.state, member, stream);
        let mut joining = self.joining.lock();
        match shaken {
            Ok(joined) => {
                joining.members.insert(member, Some(joined));
                self.joined.notify_all();
                Ok(())
            }
            Err(error) => {
                // The caller may try again over another stream.
                joining.members.remove(&member);
                Err(error)
            }
        }
    }

    /// Maps the views and starts the threads when all members have joined.
    ///
    /// # Errors
    /// Fails if a member does not join in time, or the system lacks memory, addresses or threads.
    pub fn start(&self) -> Result<(), HeapError> {
        let others = self.state.plan.others();
        let deadline = Instant::now() + Duration::from_millis(MEMBERS_MS_MAX);
        let mut joining = self.joining.lock();
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
            joining = self.joined.wait_timeout(joining, left).0;
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
                // The memory is mapped, so its descriptor is no longer needed.
                Joined::Shares(stream, _) => sharing.push((member, stream)),
                Joined::Apart(carrier, over) => {
                    joining.over.insert(member, over);
                    apart.push((member, carrier));
                }
            }
        }
        // From here on only the carriers hold the engine.
        #[cfg(feature = "ucx")]
        self.state.ucx.lock().take();
        let mut threads = self.threads.lock();
        threads.push(monitor::start(self.state.clone(), sharing)?);
        if !apart.is_empty() {
            threads.push(proxy::start(self.state.clone(), apart)?);
        }
        Ok(())
    }

    /// Returns what carries the proxy's bytes to another member. Returns `None` before the start,
    /// and for a member that shares its memory.
    pub fn over(&self, member: u32) -> Option<Over> {
        self.joining.lock().over.get(&member).cloned()
    }

    /// Offers UCX to carry the proxy's bytes to and from members that offer it, too. To be called
    /// before the first member joins. If UCX fails, the stream carries the bytes, and
    /// [`Heap::over`] says why.
    #[cfg(feature = "ucx")]
    pub fn offer_ucx(&self) {
        self.state.ucx.lock().make();
    }

    fn map_views(&self, members: &BTreeMap<u32, Option<Joined>>) -> Result<Vec<Mapped>, HeapError> {
        let State { plan, parts, .. } = &*self.state;
        let theirs = |member: u32| members.get(&member)?.as_ref()?.memory();
        let here = |member: u32| member == plan.me || theirs(member).is_some();
        let on_host = plan.members.iter().filter(|&&member| here(member)).count();
        let proxies = usize::from(on_host < plan.members.len());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // A proxy needs a core while a kernel waits for it.
        let looks = if proxies > 0 || on_host > cores { LOOKS_CROWDED } else { LOOKS_FREE };
        parts.pes().iter().map(|&pe| Mapped::new(plan, parts, pe, looks, &theirs)).collect()
    }

    /// Returns the memory for the kernels of one of this member's PEs.
    ///
    /// # Errors
    /// Fails if the heap has not started, or the PE belongs to another member.
    pub fn view(&self, pe: u32) -> Result<View, HeapError> {
        let member = self.member_of(pe)?;
        let views = self.state.views.get().ok_or(HeapError::NotStarted)?;
        let view = views.iter().find(|view| view.pe == pe);
        let view = view.ok_or(HeapError::ForeignPe { pe, member })?;
        Ok(View { pe, memory: view.memory.clone(), pieces: view.pieces.clone() })
    }

    /// Returns how one PE reaches another. This member knows only its own paths. For two PEs of
    /// other members it returns [`Path::Own`] if they belong to one member, and guesses
    /// [`Path::Proxy`] otherwise.
    ///
    /// # Errors
    /// Fails if the heap has no such PE, or has not started.
    pub fn path(&self, from: u32, to: u32) -> Result<Path, HeapError> {
        let (from, to) = (self.member_of(from)?, self.member_of(to)?);
        if from == to {
            return Ok(Path::Own);
        }
        let joining = self.joining.lock();
        if !joining.started {
            return Err(HeapError::NotStarted);
        }
        let other = if from == self.state.plan.me { to } else { from };
        let is_mapped = joining.mapped.get(&other).copied().unwrap_or(false);
        let knows = from == self.state.plan.me || to == self.state.plan.me;
        Ok(if knows && is_mapped { Path::Shared } else { Path::Proxy })
    }

    /// Copies user bytes of one of this member's PEs out.
    ///
    /// # Errors
    /// Fails if the PE belongs to another member, or the range exceeds its part.
    pub fn read(&self, pe: u32, offset: u64, into: &mut [u8]) -> Result<(), HeapError> {
        let place = self.place(pe, offset, into.len())?;
        // SAFETY: `into.len()` bytes lie there, mapped as long as `self` lives, and apart from
        // `into`. Kernels that write them meanwhile only change plain bytes.
        unsafe { std::ptr::copy_nonoverlapping(place.as_ptr(), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies bytes to user bytes of one of this member's PEs.
    ///
    /// # Errors
    /// See [`Heap::read`].
    pub fn write(&self, pe: u32, offset: u64, bytes: &[u8]) -> Result<(), HeapError> {
        let place = self.place(pe, offset, bytes.len())?;
        // SAFETY: as in `read`, in the other direction.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Marks a launch as in flight until the guard is dropped. Meanwhile the clock of the heap's
    /// kernels runs, and the proxy looks for their work without sleeping. Call it before the
    /// launch.
    pub fn running(&self) -> Running {
        self.state.launch();
        Running(self.state.clone())
    }

    /// Ends all waits of all kernels of the heap, on all members.
    pub fn abort(&self, reason: &str) {
        self.state.end(reason, false);
    }

    /// Returns why waits have ended, if they have.
    pub fn aborted(&self) -> Option<String> {
        self.state.ended().map(|end| end.reason)
    }

    /// Like [`Heap::abort`], but no reset makes the heap usable again: this member is about to go.
    pub fn end(&self, reason: &str) {
        self.state.end(reason, true);
    }

    /// Makes the heap usable again after an abort or a timeout. All members call it with the same
    /// `generation` after all kernels have ended and before one starts. The generation must exceed
    /// that of each earlier reset, even if only some members did it. User bytes stay.
    ///
    /// # Errors
    /// Fails if kernels run, their bytes are under way, a member has gone, or `generation` is
    /// invalid.
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

    /// Waits until all that this member's kernels have sent has arrived.
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
            self.state.end("the heap was released while its kernels ran", true);
        } else if self.state.ended().is_none() {
            // Bytes that the others do not take in time are lost with the heap.
            self.settle();
        }
        self.state.closing.store(true, std::sync::atomic::Ordering::Release);
        self.state.monitor.ring();
        self.state.proxy.ring();
        for thread in self.threads.lock().drain(..) {
            // A thread that panicked has nothing left to do.
            _ = thread.join();
        }
    }
}

/// Memory for the kernels of one PE: its head and all parts. A view or the heap keeps it mapped.
#[derive(Clone, Debug)]
pub struct View {
    pe: u32,
    memory: Arc<Addresses>,
    pieces: Arc<[Range<usize>]>,
}

impl View {
    /// Returns the PE of this view.
    pub fn pe(&self) -> u32 {
        self.pe
    }

    /// Returns the start of the address range and its length in bytes. Parts that only the proxy
    /// reaches cannot be accessed.
    pub fn range(&self) -> (NonNull<u8>, usize) {
        (self.memory.base(), self.memory.bytes())
    }

    /// Returns the mapped byte ranges in order, in whole pages: the head, and each part that is not
    /// reached by the proxy.
    pub fn pieces(&self) -> &[Range<usize>] {
        &self.pieces
    }
}

/// Launch in flight: see [`Heap::running`].
#[derive(Debug)]
pub struct Running(Arc<State>);

impl Running {
    /// Like [`Heap::abort`], for a caller that has only the launch.
    pub fn abort(&self, reason: &str) {
        self.0.end(reason, false);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.landed();
    }
}

//! One member's side of a heap.

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_link::{Addresses, Stream};
use penstock_process::{Guard, Lock, Signal};

use crate::abort::{Abort, COUNT_BITS};
use crate::bell::Bell;
use crate::connection::{MemberConnection, ProxyTransport};
use crate::error::HeapError;
use crate::handshake::shake_hands;
use crate::plan::Plan;
use crate::segment::{MappedView, Parts};
use crate::state::MemberState;
use crate::ucx_offer::UcxOffer;
use crate::{layout, proxy, watcher};

/// Time that [`Heap::start`] waits for members to join: the time of a hello, doubled for loaded
/// nodes.
const MEMBERS_MS_MAX: u64 = 30_000;

/// Time that [`Heap::reset`] and dropping a heap wait for bytes that kernels have sent.
const SETTLE_MS_MAX: u64 = 5_000;

/// Least time that [`Heap::wait_for_launches`] waits, whatever the heap's own bound is: the
/// callbacks of drivers come late on a busy machine.
const LAUNCHES_END_MIN: Duration = Duration::from_secs(5);

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
    state: Arc<MemberState>,
    ucx: UcxOffer,
    joining: Lock<Joining>,
    joined: Signal,
    threads: Lock<Vec<JoinHandle<()>>>,
}

/// Progress of the joining members.
#[derive(Debug, Default)]
struct Joining {
    /// Result for each other member; `None` during its handshake.
    members: BTreeMap<u32, Option<MemberConnection>>,
    /// From the start on: whether each member's memory is mapped.
    mapped: BTreeMap<u32, bool>,
    /// From the start on: what carries the proxy's bytes to each member.
    transports: BTreeMap<u32, ProxyTransport>,
}

impl Joining {
    /// Notes whose memory is mapped. Returns the members' connections.
    fn start(&mut self) -> Vec<(u32, MemberConnection)> {
        let members: Vec<(u32, MemberConnection)> = std::mem::take(&mut self.members)
            .into_iter()
            .filter_map(|(member, joined)| Some((member, joined?)))
            .collect();
        self.mapped =
            members.iter().map(|(member, joined)| (*member, joined.memory().is_some())).collect();
        members
    }
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

/// How one PE reaches each PE of the heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PePaths {
    pub from: u32,
    /// The path to each PE, by its number.
    pub to: Vec<Path>,
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
        let state = Arc::new(MemberState::new(plan, parts, Bell::new()?, Bell::new()?));
        Ok(Arc::new(Self {
            state,
            ucx: UcxOffer::default(),
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
            self.state.lifecycle().check_join()?;
            if joining.members.contains_key(&member) {
                return Err(HeapError::JoinedTwice { member });
            }
            joining.members.insert(member, None);
        }
        let shaken = shake_hands(&self.state.plan, &self.state.parts, &self.ucx, member, stream);
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
        self.state.lifecycle().begin_start()?;
        let joined = self.await_members().and_then(|mut joining| {
            let views = self.map_views(&joining.members)?;
            let members = joining.start();
            self.state.publish(views);
            Ok((joining, members))
        });
        self.state.lifecycle().end_start(joined.is_ok());
        let (mut joining, members) = joined?;
        let (mut sharing, mut proxied) = (Vec::new(), Vec::new());
        for (member, joined) in members {
            match joined {
                // The memory is mapped, so its descriptor is no longer needed.
                MemberConnection::SharesMemory(stream, _) => sharing.push((member, stream)),
                MemberConnection::Proxied(carrier, transport) => {
                    joining.transports.insert(member, transport);
                    proxied.push((member, carrier));
                }
            }
        }
        // From here on only the carriers hold the engine of UCX.
        self.ucx.withdraw();
        let mut threads = self.threads.lock();
        threads.push(watcher::start(self.state.clone(), sharing)?);
        if !proxied.is_empty() {
            threads.push(proxy::start(self.state.clone(), proxied)?);
        }
        Ok(())
    }

    /// Waits until all members have joined.
    fn await_members(&self) -> Result<Guard<'_, Joining>, HeapError> {
        let others = self.state.plan.others();
        let deadline = Instant::now() + Duration::from_millis(MEMBERS_MS_MAX);
        let mut joining = self.joining.lock();
        loop {
            let missing = |member: &&u32| joining.members.get(*member).is_none_or(Option::is_none);
            let mut absent = others.iter().filter(missing);
            let Some(&first) = absent.next() else { return Ok(joining) };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(HeapError::Missing { first, more: absent.count() });
            }
            joining = self.joined.wait_timeout(joining, left).0;
        }
    }

    /// Returns what carries the proxy's bytes to another member. Returns `None` before the start,
    /// and for a member that shares its memory.
    pub fn transport(&self, member: u32) -> Option<ProxyTransport> {
        self.joining.lock().transports.get(&member).cloned()
    }

    /// Offers UCX to carry the proxy's bytes to and from members that offer it, too. To be called
    /// before the first member joins. If UCX fails, the stream carries the bytes, and
    /// [`Heap::transport`] says why.
    #[cfg(feature = "ucx")]
    pub fn offer_ucx(&self) {
        self.ucx.make();
    }

    fn map_views(
        &self,
        members: &BTreeMap<u32, Option<MemberConnection>>,
    ) -> Result<Vec<MappedView>, HeapError> {
        let MemberState { plan, parts, .. } = &*self.state;
        let theirs = |member: u32| members.get(&member)?.as_ref()?.memory();
        let here = |member: u32| member == plan.me || theirs(member).is_some();
        let on_host = plan.members.iter().filter(|&&member| here(member)).count();
        let proxies = usize::from(on_host < plan.members.len());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // A proxy needs a core while a kernel waits for it.
        let looks = if proxies > 0 || on_host > cores { LOOKS_CROWDED } else { LOOKS_FREE };
        parts.pes().iter().map(|&pe| MappedView::new(plan, parts, pe, looks, &theirs)).collect()
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
        let bytes = self.state.plan.bytes;
        Ok(View { pe, bytes, memory: view.memory.clone(), pieces: view.pieces.clone() })
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
        self.state.lifecycle().check_started()?;
        let joining = self.joining.lock();
        let other = if from == self.state.plan.me { to } else { from };
        let is_mapped = joining.mapped.get(&other).copied().unwrap_or(false);
        let knows = from == self.state.plan.me || to == self.state.plan.me;
        Ok(if knows && is_mapped { Path::Shared } else { Path::Proxy })
    }

    /// Returns how each PE of this member reaches each PE of the heap.
    ///
    /// # Errors
    /// Fails if the heap has not started.
    pub fn own_paths(&self) -> Result<Vec<PePaths>, HeapError> {
        let plan = self.plan();
        let paths = |from| {
            let to = (0..plan.count()).map(|to| self.path(from, to)).collect::<Result<_, _>>()?;
            Ok(PePaths { from, to })
        };
        plan.own_pes().map(paths).collect()
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
        self.state.abort(reason);
    }

    /// Returns why waits have ended, if they have.
    pub fn aborted(&self) -> Option<String> {
        self.state.aborted().map(|abort| abort.reason)
    }

    /// Like [`Heap::abort`], but no reset makes the heap usable again: this member is about to go.
    pub fn end(&self, reason: &str) {
        self.state.end(reason);
    }

    /// Makes the heap usable again after an abort or a timeout. All members call it with the same
    /// `generation` after all kernels have ended and before one starts. The generation must exceed
    /// that of each earlier reset, even if only some members did it. User bytes stay.
    ///
    /// # Errors
    /// Fails if kernels run, their bytes are under way, a member has gone, or `generation` is
    /// invalid.
    pub fn reset(&self, generation: u64) -> Result<(), HeapError> {
        self.reset_within(generation, Duration::ZERO)
    }

    /// Like [`Heap::reset`], but waits for the end of launches in flight first.
    ///
    /// # Errors
    /// See [`Heap::reset`]. Launches may be in flight for as long as a kernel may wait.
    pub fn reset_after_launches(&self, generation: u64) -> Result<(), HeapError> {
        self.reset_within(generation, self.launches_end_within())
    }

    fn reset_within(&self, generation: u64, patience: Duration) -> Result<(), HeapError> {
        // Before everything else: another reset may begin a generation meanwhile, and the check of
        // this generation would then be of no use.
        self.state.lifecycle().begin_reset()?;
        let is_reset = self.begin_generation_within(generation, patience);
        self.state.lifecycle().end_reset();
        is_reset
    }

    /// Begins a generation. The caller keeps other threads from resetting the heap meanwhile.
    fn begin_generation_within(
        &self,
        generation: u64,
        patience: Duration,
    ) -> Result<(), HeapError> {
        let ended = |abort: Abort| HeapError::Ended { reason: abort.reason };
        if let Some(abort) = self.state.aborted().filter(|abort| abort.is_final) {
            return Err(ended(abort));
        }
        let (min, max) = (self.state.generation() + 1, (1 << (u64::BITS - COUNT_BITS)) - 1);
        if !(min..=max).contains(&generation) {
            return Err(HeapError::Limit { what: "resets", given: generation, min, max });
        }
        self.state.wait_until_idle(Instant::now() + patience);
        self.state.lifecycle().check_reset()?;
        if !self.wait_until_settled() {
            return Err(HeapError::Busy);
        }
        self.state.begin_generation(generation).map_err(ended)
    }

    /// Returns whether launches are in flight.
    pub fn is_running(&self) -> bool {
        self.state.is_running()
    }

    /// Waits until no launch is in flight, but not for ever: a launch takes no longer than its
    /// kernels' waits, apart from its own work. Returns `false` if a launch is still in flight.
    pub fn wait_for_launches(&self) -> bool {
        self.state.wait_until_idle(Instant::now() + self.launches_end_within())
    }

    /// Returns the longest time that a waiting launch takes to end.
    fn launches_end_within(&self) -> Duration {
        self.state.plan.timeout.max(LAUNCHES_END_MIN)
    }

    /// Waits until all that this member's kernels have sent has arrived.
    fn wait_until_settled(&self) -> bool {
        self.state
            .settle
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
            .has_user_bytes(offset, length)
            .then(|| self.state.parts.user_place(pe, offset, length))
            .flatten();
        place.ok_or(HeapError::Range { offset, length, bytes })
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if self.state.is_running() {
            self.state.end("the heap was released while its kernels ran");
        } else if self.state.aborted().is_none() {
            // Bytes that the others do not take in time are lost with the heap.
            self.wait_until_settled();
        }
        self.state.close();
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
    /// Number of user bytes of each part.
    bytes: u64,
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

    /// Returns where the user bytes of the PE's own part lie in the view.
    pub fn user_range(&self) -> Range<u64> {
        let start = layout::user_offset(self.pe, self.bytes);
        start..start + self.bytes
    }

    /// Returns the user bytes of the PE's own part as memory of its own.
    pub fn user_bytes(&self) -> UserBytes {
        UserBytes(self.clone())
    }
}

/// User bytes of one PE's own part. They stay mapped as long as this value lives.
#[derive(Clone, Debug)]
pub struct UserBytes(View);

impl UserBytes {
    /// Returns the address of the first byte, and the number of bytes.
    pub fn range(&self) -> (NonNull<u8>, usize) {
        let (start, length) = self.0.range();
        let user = self.0.user_range();
        let (at, end) = (usize::try_from(user.start), usize::try_from(user.end));
        let (Ok(at), Ok(end)) = (at, end) else { return (start, 0) };
        if end > length {
            return (start, 0);
        }
        // SAFETY: `at` lies within the view, as checked, and the view is one range of addresses.
        (unsafe { start.add(at) }, end - at)
    }
}

/// Launch in flight: see [`Heap::running`].
#[derive(Debug)]
pub struct Running(Arc<MemberState>);

impl Running {
    /// Ends the launch. A failed launch aborts the heap with `failure` as the reason, because the
    /// other members wait in vain. Returns why the heap is aborted, if it is.
    pub fn end(self, failure: Option<&str>) -> Option<String> {
        if let Some(reason) = failure {
            self.0.abort(reason);
        }
        self.0.aborted().map(|abort| abort.reason)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.land();
    }
}

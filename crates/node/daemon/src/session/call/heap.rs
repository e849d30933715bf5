//! Members of symmetric heaps: memory of this worker's devices that kernels of all members reach.
//!
//! `penstock_ggas::host` forms, starts, resets and ends the members. This file has the client's
//! calls, and what a worker does in its own way: it reaches other members through their daemons,
//! makes memory objects in the client's contexts, and answers requests.

use std::sync::Arc;
use std::time::Duration;

use penstock_cl_sys::CL_MEM_READ_WRITE;
use penstock_device as device;
use penstock_ggas::host::{HeapSite, HostError, HostedHeap, Join, Release};
use penstock_ggas::{Path, PePaths, Plan, View};
use penstock_link::Stream;
use penstock_wire::calls::{Attached, Serve, Served, to_worker};
use penstock_wire::describe::{HeapPath, HeapPlan, HeapStarted, PeerInvitation};
use penstock_wire::id::kind;
use penstock_wire::limits::HEAP_TIMEOUT_MS_MAX;
use penstock_wire::{FrameError, Id, Status, frame};

use super::heap_transport;
use crate::session::Session;
use crate::session::heap::Heaps;
use crate::session::peer::Guest;
use crate::session::shared::HeapView;
use crate::session::shared_session::SharedSession;

/// The session's member of a heap.
type Member = HostedHeap<Arc<device::Share>>;

/// How a worker reaches another member.
pub(super) struct MemberRoute {
    member: u32,
    invitation: PeerInvitation,
}

/// Where a PE's memory objects belong.
pub(super) struct PeDevice {
    context: device::Context,
    share: Arc<device::Share>,
}

/// Memory objects of a PE.
pub(super) struct PeMemory {
    /// The argument of kernels.
    view: device::Mem,
    /// The user bytes of the PE's own part, for transfers.
    part: device::Mem,
}

/// A worker as the host of heaps.
#[derive(Clone)]
pub(super) struct WorkerSite(Arc<SharedSession>);

impl HeapSite for WorkerSite {
    type Route = MemberRoute;
    type Device = PeDevice;
    type Memory = PeMemory;
    type BindError = Status;

    fn connect(&self, route: MemberRoute, join: &mut Join<'_>) -> Result<(), HostError> {
        self.0.peers.reach(&route.invitation, |stream| Ok(join(route.member, stream)?))
    }

    /// Makes a buffer of the whole view, and a sub-buffer of the user bytes in it.
    fn bind(&self, device: &PeDevice, view: View) -> Result<PeMemory, Status> {
        let (_, bytes) = view.range();
        let size = u64::try_from(bytes).map_err(|_| Status::OUT_OF_HOST_MEMORY)?;
        let user = view.user_range();
        let lent = HeapView { view, _share: device.share.clone() };
        let view =
            device::Mem::buffer_in(&device.context, CL_MEM_READ_WRITE, size, Box::new(lent))?;
        let part =
            device::Mem::sub_buffer(&view, CL_MEM_READ_WRITE, user.start, user.end - user.start)?;
        Ok(PeMemory { view, part })
    }

    fn report(&self, fault: &HostError) {
        self.0.complain("a member of a heap did not come", fault);
    }
}

impl SharedSession {
    /// Meets another member of a heap that has come with a ticket.
    pub(super) fn member_arrived(
        self: &Arc<Self>,
        heap: Id<kind::Heap>,
        member: u32,
        stream: Stream,
    ) {
        self.heaps.arrive(WorkerSite(self.clone()), heap, member, stream);
    }

    /// Answers with an error text, or with none.
    fn reply_heap(&self, request: Id<kind::Request>, done: Result<(), HostError>) {
        let refused = done.err().map(|error| error.to_string());
        self.reply::<Option<String>>(request, &Ok(refused));
    }
}

/// Makes this worker's member of a heap. Returns the reason if that is not possible.
fn create(call: &to_worker::CreateHeap, plan: HeapPlan, heaps: &Heaps) -> Result<(), String> {
    let timeout_ms = call.timeout_ms.get();
    if timeout_ms > HEAP_TIMEOUT_MS_MAX {
        return Err(format!(
            "kernels wait at most {HEAP_TIMEOUT_MS_MAX} ms inside a heap, not {timeout_ms}"
        ));
    }
    let plan = Plan {
        id: call.heap.get(),
        members: plan.members,
        me: call.me.get(),
        bytes: call.bytes.get(),
        timeout: Duration::from_millis(timeout_ms.into()),
        force_proxy: call.force_proxy.get() != 0,
    };
    let share = device::Share::take(plan.own_bytes()).map_err(|_| {
        let (own, bytes) = (plan.own_pes().count(), plan.bytes);
        format!("{own} parts of {bytes} bytes are more memory than the node's devices have")
    })?;
    let formed = heaps.create(plan).map_err(|error| error.to_string())?;
    heap_transport::offer(formed.heap());
    heaps.add(call.heap, formed, Arc::new(share));
    Ok(())
}

impl Serve<to_worker::CreateHeap> for Session {
    fn serve(&mut self, call: &to_worker::CreateHeap, with: Attached<'_>) -> Served {
        let plan: HeapPlan = frame::decode("CreateHeap", &with.payload.read_all()?)?;
        let heaps = &self.shared.heaps;
        if call.heap.is_none() || heaps.get(call.heap).is_some() {
            return Err(FrameError::BadId("a heap"));
        }
        let refused = create(call, plan, heaps).err();
        self.shared.reply::<Option<String>>(call.request, &Ok(refused));
        Ok(())
    }
}

impl Serve<to_worker::AdmitHeapMember> for Session {
    fn serve(&mut self, call: &to_worker::AdmitHeapMember, with: Attached<'_>) -> Served {
        let bytes = with.payload.read_all()?;
        let ticket = bytes.try_into().map_err(|_| FrameError::BadPayload("AdmitHeapMember"))?;
        let guest = Guest::Member(call.heap, call.member.get());
        // If the heap does not exist, the member is turned away when it comes.
        if let Err(status) = self.shared.peers.admit(ticket, guest, call.request)? {
            self.shared.reply::<()>(call.request, &Err(status));
        }
        Ok(())
    }
}

impl Serve<to_worker::ConnectHeapMember> for Session {
    fn serve(&mut self, call: &to_worker::ConnectHeapMember, with: Attached<'_>) -> Served {
        let invitation: PeerInvitation =
            frame::decode("ConnectHeapMember", &with.payload.read_all()?)?;
        let route = MemberRoute { member: call.member.get(), invitation };
        let (shared, request) = (self.shared.clone(), call.request);
        let answer = move |met| shared.reply_heap(request, met);
        let site = WorkerSite(self.shared.clone());
        self.shared.heaps.connect(site, call.heap, route, answer);
        Ok(())
    }
}

impl Serve<to_worker::StartHeap> for Session {
    fn serve(&mut self, call: &to_worker::StartHeap, _: Attached<'_>) -> Served {
        let (shared, request) = (self.shared.clone(), call.request);
        let start = {
            let shared = shared.clone();
            move |of: &Member| {
                let paths = of.start()?;
                shared.log_transports(of.heap());
                Ok(paths.iter().map(|paths| described(of, paths)).collect())
            }
        };
        let answer = move |started: Result<_, HostError>| {
            let answer = match started {
                Ok(paths) => HeapStarted { refused: None, paths },
                Err(error) => HeapStarted { refused: Some(error.to_string()), paths: Vec::new() },
            };
            shared.reply(request, &Ok(answer));
        };
        self.shared.heaps.run(call.heap, "heap-start", start, answer);
        Ok(())
    }
}

/// Returns how one PE of this member reaches all PEs, as the client shall know it.
fn described(of: &Member, paths: &PePaths) -> (u32, Vec<HeapPath>) {
    let path = |(to, path): (u32, &Path)| match path {
        Path::Own if to == paths.from => HeapPath::Own,
        Path::Own | Path::Shared => HeapPath::Shared,
        Path::Proxy => heap_transport::path(of.heap(), to),
    };
    (paths.from, (0..).zip(&paths.to).map(path).collect())
}

impl Serve<to_worker::CreateHeapView> for Session {
    fn serve(&mut self, call: &to_worker::CreateHeapView, _: Attached<'_>) -> Served {
        let objects = &mut self.objects;
        objects.mems.vacant(call.view)?;
        objects.views.vacant(call.view)?;
        objects.mems.vacant(call.part)?;
        if call.part == call.view {
            return Err(FrameError::BadId("a part of a heap"));
        }
        let bind = || {
            let of = self.shared.heaps.get(call.heap).ok_or(Status::INVALID_OPERATION)?;
            let view = of.heap().view(call.pe.get()).map_err(|_| Status::INVALID_OPERATION)?;
            let context = objects.contexts.get(call.context)?.clone();
            let device = PeDevice { context, share: of.extra().clone() };
            Ok((of.heap().clone(), WorkerSite(self.shared.clone()).bind(&device, view)?))
        };
        let answer = match bind() {
            Ok((heap, memory)) => {
                objects.views.insert(call.view, memory.view, call.heap, heap)?;
                objects.mems.insert(call.part, Ok(memory.part))?;
                Ok(())
            }
            Err(status) => Err(status),
        };
        self.shared.reply(call.request, &answer);
        Ok(())
    }
}

impl Serve<to_worker::HeapStatus> for Session {
    fn serve(&mut self, call: &to_worker::HeapStatus, _: Attached<'_>) -> Served {
        let aborted = self
            .shared
            .heaps
            .get(call.heap)
            .map_or_else(|| Some(HostError::Unknown.to_string()), |of| of.heap().aborted());
        self.shared.reply(call.request, &Ok(aborted));
        Ok(())
    }
}

impl Serve<to_worker::AbortHeap> for Session {
    fn serve(&mut self, call: &to_worker::AbortHeap, with: Attached<'_>) -> Served {
        let reason = with.payload.read_all()?;
        if let Some(of) = self.shared.heaps.get(call.heap) {
            of.heap().abort(&String::from_utf8_lossy(&reason));
        }
        Ok(())
    }
}

impl Serve<to_worker::ResetHeap> for Session {
    fn serve(&mut self, call: &to_worker::ResetHeap, _: Attached<'_>) -> Served {
        let (shared, request) = (self.shared.clone(), call.request);
        let answer = move |done| shared.reply_heap(request, done);
        self.shared.heaps.reset(call.heap, call.generation.get(), answer);
        Ok(())
    }
}

impl Serve<to_worker::ReleaseHeap> for Session {
    fn serve(&mut self, call: &to_worker::ReleaseHeap, _: Attached<'_>) -> Served {
        // The views go first, so that the heap ends in the host's thread and not in this one.
        self.objects.views.forget_heap(call.heap);
        if self.shared.heaps.release(call.heap, Release::AfterLaunches) {
            self.shared.peers.forget_members(call.heap);
        }
        Ok(())
    }
}

//! Kernels with their arguments, and samplers.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use penstock_cl_sys::{
    CL_KERNEL_ARG_ACCESS_READ_ONLY, CL_KERNEL_ARG_ADDRESS_CONSTANT, CL_KERNEL_ARG_TYPE_CONST,
    CL_MEM_READ_ONLY,
};
use penstock_process::{Lock, variable};
use penstock_trial::{Defect, planted};
use penstock_wire::args::{self, Arg};
use penstock_wire::calls::to_worker;
use penstock_wire::describe::KernelDescription;
use penstock_wire::id::kind;
use penstock_wire::{Id, IndexSpace, Request, U32, frame};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::heap::Heap;
use crate::memory::Memory;
use crate::pool::Device;
use crate::program::{KernelInfo, Program};
use crate::queue::{Access, Queue};
use crate::resident::{GroupForm, ResidentGroups};
use crate::session::{Pending, Session};

#[derive(Debug)]
pub struct Sampler {
    context: Arc<Context>,
    ids: Vec<Id<kind::Sampler>>,
}

impl Sampler {
    /// `clCreateSamplerWithProperties`. `properties` come without the terminating 0.
    ///
    /// # Errors
    /// If a node is lost.
    pub fn new(context: &Arc<Context>, properties: &[u64]) -> Result<Arc<Self>> {
        let mut ids = Vec::new();
        for place in context.places() {
            let sampler = crate::ids::next_id();
            let call = to_worker::CreateSampler { sampler, context: place.id };
            place.unless_lost(place.session.send(
                &call,
                &[],
                &frame::encode(&properties.to_vec()),
            ))?;
            ids.push(sampler);
        }
        Ok(Arc::new(Self { context: context.clone(), ids }))
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        for (place, sampler) in self.context.places().iter().zip(&self.ids) {
            // A lost session has released everything.
            _ = place.session.send(&to_worker::ReleaseSampler { sampler: *sampler }, &[], &[]);
        }
    }
}

/// A value that a program has set as a kernel's argument.
#[derive(Clone, Debug)]
pub enum ArgValue {
    /// The bytes of a value, as the device sees it.
    Bytes(Box<[u8]>),
    /// A buffer, image or pipe, or `None` for `NULL`.
    Memory(Option<Arc<Memory>>),
    Sampler(Arc<Sampler>),
    /// Size of local memory, in bytes.
    Local(u64),
    /// An address in shared virtual memory.
    Svm {
        address: u64,
        /// The allocation that contains the address; `None` for `NULL` or an address outside our
        /// allocations.
        memory: Option<Arc<Memory>>,
    },
    /// A queue on the device.
    Queue(Arc<Queue>),
    /// A symmetric heap. At each launch the kernel gets the view of the queue's device.
    Heap(Arc<Heap>),
}

impl ArgValue {
    /// Returns whether the values are equal, so that a worker need not hear of the change.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Memory(Some(a)), Self::Memory(Some(b))) => Arc::ptr_eq(a, b),
            (Self::Memory(None), Self::Memory(None)) => true,
            (Self::Sampler(a), Self::Sampler(b)) => Arc::ptr_eq(a, b),
            (Self::Local(a), Self::Local(b)) => a == b,
            (Self::Heap(a), Self::Heap(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// A launch that is held back. The thread that sends it has its own copy of the arguments and does
/// not lock those of the kernel.
pub(crate) struct LateLaunch(Arc<Kernel>);

impl LateLaunch {
    /// Counts a launch as held back. `_args` proves that the caller has locked the kernel's
    /// arguments.
    pub(crate) fn new(kernel: &Arc<Kernel>, _args: &Args) -> Self {
        kernel.late.fetch_add(1, Ordering::Relaxed);
        Self(kernel.clone())
    }

    pub(crate) fn kernel(&self) -> &Kernel {
        &self.0
    }
}

impl Drop for LateLaunch {
    fn drop(&mut self) {
        // A thread that sees the new number also sees the arguments that the launch has overridden.
        self.0.late.fetch_sub(1, Ordering::Release);
    }
}

/// A kernel object: a function of a program, with arguments.
pub struct Kernel {
    program: Arc<Program>,
    description: Arc<KernelDescription>,
    ids: Vec<Id<kind::Kernel>>,
    pub(crate) args: Lock<Args>,
    /// Whether all arguments have been set. No argument can be unset.
    is_ready: AtomicBool,
    /// Held from the encoding of arguments until they are sent, so that a worker gets them in that
    /// order. While there is no [`LateLaunch`], the lock of the arguments alone ensures this.
    wire: Lock<()>,
    /// Number of living [`LateLaunch`]es. It only grows while the arguments are locked.
    late: AtomicUsize,
    /// Answers that [`Kernel::resident`] has received.
    resident: ResidentGroups,
}

/// The arguments of a kernel object.
#[derive(Debug, Clone)]
pub(crate) struct Args {
    values: Vec<Slot>,
    /// Allocations that the kernel uses beside its arguments (`CL_KERNEL_EXEC_INFO_SVM_PTRS`).
    beside: Vec<Arc<Memory>>,
    /// Number of changes so far.
    version: u64,
    /// Version that each place has.
    sent: Vec<u64>,
    /// Device whose heap views each place has.
    views_of: Vec<Option<u32>>,
    /// Whether a launch that had been held back has since sent other arguments to a place.
    overridden: Arc<[AtomicBool]>,
    /// Values of `clSetKernelExecInfo`, by name.
    exec_info: Vec<(u32, Arc<[u8]>)>,
    /// Number of changes of `exec_info` so far.
    exec_version: u64,
    /// Version of `exec_info` that each place has.
    exec_there: Arc<[AtomicU64]>,
    /// Encoded changes for the next launch. Kept so that its memory is reused.
    scratch: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Slot {
    value: Option<ArgValue>,
    version: u64,
    read_only: bool,
}

/// Returns whether kernels are trusted not to write through pointers to `const`
/// (`PENSTOCK_TRUST_CONST=1`).
///
/// OpenCL C lets a kernel cast `const` away, programs do so, and drivers do not rely on it. So a
/// buffer that is passed as such a pointer counts as written, unless it was made with
/// `CL_MEM_READ_ONLY`. If several nodes read one buffer through `const` pointers, trusting them
/// saves the transfers of that buffer.
fn trusts_const() -> bool {
    static TRUSTS: OnceLock<bool> = OnceLock::new();
    *TRUSTS.get_or_init(|| variable::TRUST_CONST.is_on()) || planted(Defect::TrustConst)
}

impl Kernel {
    pub(crate) fn may_print(&self) -> bool {
        self.program.may_print()
    }

    /// `clCreateKernel` for a built program.
    ///
    /// # Errors
    /// If a node is lost.
    pub fn new(program: &Arc<Program>, description: Arc<KernelDescription>) -> Result<Arc<Self>> {
        let mut ids = Vec::new();
        for (place, id) in program.context().places().iter().zip(program.ids()) {
            let kernel = crate::ids::next_id();
            if !id.is_none() {
                let call = to_worker::CreateKernel { kernel, program: *id };
                place.unless_lost(place.session.send(&call, &[], description.name.as_bytes()))?;
            }
            ids.push(kernel);
        }
        let values = description.args.iter().map(|arg| Slot {
            value: None,
            version: 0,
            read_only: description.arg_info
                && (arg.address == CL_KERNEL_ARG_ADDRESS_CONSTANT
                    || arg.access == CL_KERNEL_ARG_ACCESS_READ_ONLY
                    || (arg.type_qualifier & CL_KERNEL_ARG_TYPE_CONST != 0 && trusts_const())),
        });
        let args = Args {
            values: values.collect(),
            beside: Vec::new(),
            version: 0,
            sent: vec![0; ids.len()],
            views_of: vec![None; ids.len()],
            overridden: ids.iter().map(|_| AtomicBool::new(false)).collect(),
            exec_info: Vec::new(),
            exec_version: 0,
            exec_there: ids.iter().map(|_| AtomicU64::new(0)).collect(),
            scratch: Vec::new(),
        };
        let (program, args) = (program.clone(), Lock::new(args));
        let (wire, late, resident) =
            (Lock::default(), AtomicUsize::new(0), ResidentGroups::default());
        let is_ready = AtomicBool::new(description.args.is_empty());
        Ok(Arc::new(Self { program, description, ids, args, is_ready, wire, late, resident }))
    }

    /// `clCloneKernel`: makes a new object with the same arguments.
    ///
    /// # Errors
    /// If a node is lost.
    pub fn duplicate(&self) -> Result<Arc<Self>> {
        let copy = Self::new(&self.program, self.description.clone())?;
        {
            let (mut to, from) = (copy.args.lock(), self.args.lock());
            to.values.clone_from(&from.values);
            to.beside.clone_from(&from.beside);
            to.exec_info.clone_from(&from.exec_info);
            to.exec_version = from.exec_version;
            to.version = from.version;
        }
        Ok(copy)
    }

    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    pub fn description(&self) -> &Arc<KernelDescription> {
        &self.description
    }

    /// Sets an argument. A worker receives it with the next launch there.
    pub fn set(&self, index: usize, value: ArgValue) {
        let mut args = self.args.lock();
        let version = args.version + 1;
        let Some(slot) = args.values.get_mut(index) else { return };
        if slot.value.as_ref().is_some_and(|known| known.is_same(&value)) {
            return;
        }
        // Dropped after the lock is released: it may be the last reference to an object.
        let old = slot.value.replace(value);
        slot.version = version;
        args.version = version;
        drop(args);
        drop(old);
    }

    /// Sets an argument to bytes. Bytes equal to the previous ones are not sent again. A previous
    /// value of the same size gives its memory to the new one.
    pub fn set_bytes(&self, index: usize, bytes: &[u8]) {
        let mut args = self.args.lock();
        let version = args.version + 1;
        let Some(slot) = args.values.get_mut(index) else { return };
        match &mut slot.value {
            Some(ArgValue::Bytes(known)) if **known == *bytes => return,
            Some(ArgValue::Bytes(known)) if known.len() == bytes.len() => {
                known.copy_from_slice(bytes)
            }
            value => *value = Some(ArgValue::Bytes(bytes.into())),
        }
        slot.version = version;
        args.version = version;
    }

    /// Returns whether all arguments are set.
    pub fn is_ready(&self) -> bool {
        if self.is_ready.load(Ordering::Acquire) {
            return true;
        }
        let is_ready = self.args.lock().values.iter().all(|slot| slot.value.is_some());
        if is_ready {
            self.is_ready.store(true, Ordering::Release);
        }
        is_ready
    }

    /// Calls `look` with the index and value of each argument, in order.
    pub fn look_at_args(&self, mut look: impl FnMut(usize, Option<&ArgValue>)) {
        for (index, slot) in self.args.lock().values.iter().enumerate() {
            look(index, slot.value.as_ref());
        }
    }

    /// `clSetKernelExecInfo`. Waits for the workers. `reaches` lists the allocations that the
    /// kernel uses beside its arguments, if this call sets them.
    ///
    /// # Errors
    /// The driver's code.
    pub fn set_exec_info(
        &self,
        name: u32,
        value: &[u8],
        reaches: Option<Vec<Arc<Memory>>>,
    ) -> Result<()> {
        let mut args = self.args.lock();
        self.send_args(|| {
            let places = self.program.context().places().iter().zip(&self.ids).enumerate();
            // A place without a build of the program has no such kernel and no launch of it.
            for (_, (place, kernel)) in places.filter(|(index, _)| self.description.is_at(*index)) {
                place.session.request(exec_info(*kernel, name), value).wait()?;
            }
            Ok(())
        })?;
        args.exec_info.retain(|(known, _)| *known != name);
        args.exec_info.push((name, value.into()));
        args.exec_version += 1;
        args.exec_there.iter().for_each(|there| there.store(args.exec_version, Ordering::Release));
        if let Some(reaches) = reaches {
            args.beside = reaches;
        }
        Ok(())
    }

    /// `clGetKernelSubGroupInfo`. Waits for the worker. `output` is the size of the caller's memory
    /// for the output, in bytes.
    ///
    /// # Errors
    /// The driver's code.
    pub fn sub_group_info(
        &self,
        device: &Device,
        name: u32,
        input: &[u8],
        output: usize,
    ) -> Result<Vec<u8>> {
        let call = to_worker::KernelSubGroupInfo {
            request: Id::NONE,
            kernel: self.id_for(device)?,
            device: U32::new(device.index()),
            name: U32::new(name),
            output: U32::new(u32::try_from(output).unwrap_or(u32::MAX)),
        };
        device.session().request(call, input).wait()
    }

    /// `clGetKernelWorkGroupInfo`, answered by the driver for the present arguments. Waits for the
    /// worker.
    ///
    /// # Errors
    /// The driver's code.
    pub fn work_group_info(&self, device: &Device, name: u32) -> Result<Vec<u8>> {
        let kernel = self.id_for(device)?;
        let call = to_worker::KernelWorkGroupInfo {
            request: Id::NONE,
            kernel,
            device: U32::new(device.index()),
            name: U32::new(name),
        };
        self.ask_with_args(device, call)
    }

    /// Sends a query together with the present arguments, and waits for the answer.
    fn ask_with_args<C: Request>(&self, device: &Device, call: C) -> Result<C::Reply> {
        let place = self.place_of(device)?;
        let mut args = self.args.lock();
        let asked = self
            .send_args(|| Ok(device.session().request(call, args.changed(place, device)?)))
            .and_then(Pending::wait);
        // The worker may have failed before it set the arguments.
        asked.inspect_err(|_| args.resend(Some(place)))
    }

    /// Runs `send`, which encodes and sends the arguments of a launch that was held back.
    pub(crate) fn on_wire<T>(&self, send: impl FnOnce() -> Result<T>) -> Result<T> {
        let _wire = self.wire.lock();
        send()
    }

    /// Runs `send`, which encodes and sends arguments that the caller has locked.
    pub(crate) fn send_args<T>(&self, send: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.late.load(Ordering::Acquire) == 0 { send() } else { self.on_wire(send) }
    }

    /// Returns the number of work-groups of `work_items` work-items, with the local memory that the
    /// arguments give, that run at the same time on a GPU that CUDA's driver drives. Waits for the
    /// worker unless this form was asked for before.
    ///
    /// # Errors
    /// The driver's code, or `CL_INVALID_VALUE` if the driver cannot tell.
    pub fn resident(&self, device: &Device, work_items: u32) -> Result<u64> {
        let local = self.args.lock().values.iter().find_map(|slot| match slot.value {
            Some(ArgValue::Local(bytes)) => Some(bytes),
            _ => None,
        });
        let form = GroupForm { device: device.index(), work_items, local: local.unwrap_or(0) };
        if let Some(known) = self.resident.find(form) {
            return Ok(known);
        }
        let kernel = self.id_for(device)?;
        let work_items = U32::new(work_items);
        let call = to_worker::ResidentGroups { request: Id::NONE, kernel, work_items };
        let groups = self.ask_with_args(device, call)?;
        self.resident.add(form, groups);
        Ok(groups)
    }

    /// `clGetKernelSuggestedLocalWorkSizeKHR`. Waits for the worker.
    ///
    /// # Errors
    /// The driver's code.
    pub fn suggested_local_size(&self, queue: &Queue, space: IndexSpace) -> Result<[u64; 3]> {
        let call = to_worker::SuggestedLocalSize {
            request: Id::NONE,
            queue: queue.id(),
            kernel: self.id_at(queue.place()),
            space: space.into(),
        };
        self.ask_with_args(queue.device(), call)
    }

    pub(crate) fn id_at(&self, place: usize) -> Id<kind::Kernel> {
        self.ids.get(place).copied().unwrap_or(Id::NONE)
    }

    fn id_for(&self, device: &Device) -> Result<Id<kind::Kernel>> {
        self.place_of(device).map(|place| self.id_at(place))
    }

    fn place_of(&self, device: &Device) -> Result<usize> {
        self.program.context().place_of(device).ok_or_else(|| {
            Error::Config("the device does not belong to the kernel's context".into())
        })
    }
}

impl Args {
    /// Returns the memory that a launch uses. A kernel may write everything that is not declared
    /// constant.
    pub(crate) fn uses(&self) -> Vec<(Arc<Memory>, Access)> {
        let access = |memory: &Memory, read_only: bool| {
            if read_only || memory.flags() & CL_MEM_READ_ONLY != 0 {
                Access::Read
            } else {
                Access::Write
            }
        };
        let args = self.values.iter().filter_map(|slot| match &slot.value {
            Some(ArgValue::Memory(Some(memory)) | ArgValue::Svm { memory: Some(memory), .. }) => {
                Some((memory.clone(), access(memory, slot.read_only)))
            }
            _ => None,
        });
        args.chain(self.beside.iter().map(|memory| (memory.clone(), access(memory, false))))
            .collect()
    }

    /// Copies the arguments for a launch that is held back, which will send all of them.
    pub(crate) fn for_later(&self, place: usize) -> Self {
        let mut copy = self.clone();
        copy.resend(Some(place));
        copy
    }

    /// Notes that a launch that had been held back has sent its arguments. The next launch sends
    /// all of its own.
    pub(crate) fn override_at(&self, place: usize) {
        if let Some(overridden) = self.overridden.get(place) {
            overridden.store(true, Ordering::Release);
        }
    }

    /// Makes a place use the values of `clSetKernelExecInfo` from the time when these arguments
    /// were taken. A launch that was held back has an older version than later launches. The driver
    /// has accepted each of these values before.
    pub(crate) fn restore_exec_info(
        &self,
        place: usize,
        kernel: Id<kind::Kernel>,
        session: &Arc<Session>,
    ) {
        let Some(there) = self.exec_there.get(place) else { return };
        if there.load(Ordering::Acquire) == self.exec_version {
            return;
        }
        for (name, value) in &self.exec_info {
            drop(session.request(exec_info(kernel, *name), value));
        }
        there.store(self.exec_version, Ordering::Release);
    }

    /// Returns the heaps among the arguments, each once.
    pub(crate) fn heaps(&self) -> Vec<Arc<Heap>> {
        let mut heaps: Vec<Arc<Heap>> = Vec::new();
        for slot in &self.values {
            if let Some(ArgValue::Heap(heap)) = &slot.value
                && !heaps.iter().any(|known| Arc::ptr_eq(known, heap))
            {
                heaps.push(heap.clone());
            }
        }
        heaps
    }

    /// Returns the arguments that changed since the last call for this place, encoded. Each device
    /// has its own view of a heap.
    pub(crate) fn changed(&mut self, place: usize, device: &Device) -> Result<&[u8]> {
        self.scratch.clear();
        if self.overridden.get(place).is_some_and(|it| it.swap(false, Ordering::AcqRel)) {
            self.resend(Some(place));
        }
        let (Some(sent), Some(views_of)) = (self.sent.get_mut(place), self.views_of.get_mut(place))
        else {
            return Ok(&self.scratch);
        };
        let other_device = views_of.replace(device.index()) != Some(device.index());
        let is_heap = |slot: &Slot| matches!(slot.value, Some(ArgValue::Heap(_)));
        let views = other_device && self.values.iter().any(is_heap);
        if *sent == self.version && !views {
            return Ok(&self.scratch);
        }
        for (index, slot) in (0u32..).zip(&self.values) {
            let is_due = slot.version > *sent || (views && is_heap(slot));
            let Some(value) = slot.value.as_ref().filter(|_| is_due) else { continue };
            let arg = match value {
                ArgValue::Bytes(bytes) => Arg::Bytes(bytes),
                ArgValue::Memory(memory) => {
                    Arg::Mem(memory.as_ref().map_or(Id::NONE, |memory| memory.id_at(place)))
                }
                ArgValue::Sampler(sampler) => {
                    Arg::Sampler(sampler.ids.get(place).copied().unwrap_or(Id::NONE))
                }
                ArgValue::Local(size) => Arg::Local(*size),
                ArgValue::Svm { address, .. } => Arg::Svm(*address),
                ArgValue::Queue(queue) => Arg::Queue(queue.id()),
                ArgValue::Heap(heap) => Arg::Mem(heap.view_on(device).unwrap_or(Id::NONE)),
            };
            args::write(&mut self.scratch, index, arg)?;
        }
        *sent = self.version;
        Ok(&self.scratch)
    }

    /// Has the next call send all arguments to a place, because earlier ones did not arrive there.
    pub(crate) fn resend(&mut self, place: Option<usize>) {
        let Some(place) = place else { return };
        if let (Some(sent), Some(views_of)) =
            (self.sent.get_mut(place), self.views_of.get_mut(place))
        {
            (*sent, *views_of) = (0, None);
        }
    }
}

fn exec_info(kernel: Id<kind::Kernel>, name: u32) -> to_worker::SetKernelExecInfo {
    to_worker::SetKernelExecInfo { request: Id::NONE, kernel, name: U32::new(name) }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        for (place, kernel) in self.program.context().places().iter().zip(&self.ids) {
            // A lost session has released everything.
            _ = place.session.send(&to_worker::ReleaseKernel { kernel: *kernel }, &[], &[]);
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("name", &self.description.name).finish_non_exhaustive()
    }
}

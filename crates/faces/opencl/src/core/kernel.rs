//! Kernel objects: what their arguments accept, and the limits of a launch.

use std::fmt;
use std::ptr::without_provenance_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use penstock_cl_sys::*;
use penstock_client::{ArgValue, KernelInfo};
use penstock_process::Lock;
use penstock_trial::{Defect, planted};
use penstock_wire::describe::KernelDescription;

use super::arg::ArgKind;
use super::device::Device;
use super::memory::{Kind, Mem};
use super::ndrange::{Limits, LocalMemory};
use super::program::{Origin, Program};
use super::queue::Queue;
use super::sampler::Sampler;
use crate::edge::{ClError, ClResult, Object, Ref, require};

/// Object behind a `cl_kernel`.
pub(crate) struct Kernel {
    pub(crate) pool: Arc<penstock_client::Kernel>,
    pub(crate) program: Ref<Program>,
    kinds: Box<[ArgKind]>,
    /// Offsets of the sub-buffers that are arguments, to check their alignment.
    origins: Lock<Box<[usize]>>,
    /// All origins combined with bitwise or.
    origin_bits: AtomicUsize,
    /// Limits for each device of the program with an executable.
    limits: Vec<(Ref<Device>, Limits)>,
    /// Cached answers of drivers about sub-groups, which do not change.
    sub_groups: Lock<Vec<(SubGroupQuery, Arc<[u8]>)>>,
}

/// A question to a driver about sub-groups.
#[derive(Debug, PartialEq, Eq)]
struct SubGroupQuery {
    /// Address of the device.
    device: usize,
    name: cl_kernel_sub_group_info,
    input: Vec<u8>,
    /// Number of bytes that the answer may have.
    room: usize,
}

/// Size of a handle in bytes.
const HANDLE: usize = size_of::<cl_mem>();

impl Object for Kernel {
    type Raw = _cl_kernel;
    const INVALID: cl_int = CL_INVALID_KERNEL;
}

impl Kernel {
    pub(crate) fn new(
        program: &Ref<Program>,
        description: &Arc<KernelDescription>,
    ) -> ClResult<Self> {
        let pool = penstock_client::Kernel::new(program.pool()?, description.clone())?;
        Ok(Self::over(program, pool))
    }

    fn over(program: &Ref<Program>, pool: Arc<penstock_client::Kernel>) -> Self {
        let description = pool.description();
        let kinds: Box<[ArgKind]> =
            description.args.iter().map(|arg| ArgKind::of(arg, description.arg_info)).collect();
        let devices = program.devices.iter();
        let ready = |device: &&Ref<Device>| {
            let is_built =
                || program.is_executable(device) && exists_for(program, description, device);
            matches!(program.origin, Origin::BuiltIn) || is_built()
        };
        let limits = devices
            .filter(ready)
            .map(|device| (device.clone(), limits(program, description, device)))
            .collect();
        program.attach_kernel();
        Self {
            pool,
            program: program.clone(),
            origins: Lock::new(vec![0; kinds.len()].into()),
            origin_bits: AtomicUsize::new(0),
            kinds,
            limits,
            sub_groups: Lock::default(),
        }
    }

    /// Implements the function `clCloneKernel`.
    pub(crate) fn duplicate(&self) -> ClResult<Self> {
        let copy = Self::over(&self.program, self.pool.duplicate()?);
        let origins = self.origins.lock().clone();
        copy.origin_bits
            .store(origins.iter().fold(0, |bits, origin| bits | origin), Ordering::Relaxed);
        *copy.origins.lock() = origins;
        Ok(copy)
    }

    /// Returns the device of a query about the kernel. "If there is only a single device associated
    /// with kernel, device can be a NULL value."
    pub(crate) fn device(&self, raw: cl_device_id) -> ClResult<Ref<Device>> {
        let devices = &self.program.devices;
        if raw.is_null() {
            // "CL_INVALID_DEVICE if device is NULL but there is more than one device associated
            // with kernel."
            return match devices.as_slice() {
                [device] => Ok(device.clone()),
                _ => Err(ClError(CL_INVALID_DEVICE)),
            };
        }
        // "CL_INVALID_DEVICE if device is not in the list of devices associated with kernel"
        let device = Device::borrow(raw)?;
        require(devices.iter().any(|known| Arc::ptr_eq(known, &device)), CL_INVALID_DEVICE)?;
        Ok(device)
    }

    /// Returns the limits of a launch on a device.
    pub(crate) fn limits(&self, device: &Ref<Device>) -> ClResult<&Limits> {
        // "CL_INVALID_PROGRAM_EXECUTABLE if there is no successfully built program executable
        // available for device associated with command_queue."
        let known = self.limits.iter().find(|(known, _)| Arc::ptr_eq(known, device));
        known.map(|(_, limits)| limits).ok_or(ClError(CL_INVALID_PROGRAM_EXECUTABLE))
    }

    /// Returns whether the kernel has, or may have, arguments in local memory.
    pub(crate) fn has_local_args(&self) -> bool {
        self.kinds.iter().any(|kind| matches!(kind, ArgKind::Local | ArgKind::Unknown))
    }

    /// Returns what argument `index` accepts.
    pub(crate) fn kind(&self, index: usize) -> ClResult<ArgKind> {
        // "CL_INVALID_ARG_INDEX if arg_index is not a valid argument index."
        self.kinds.get(index).copied().ok_or(ClError(CL_INVALID_ARG_INDEX))
    }

    /// Implements `clSetKernelArg`. `value` is `None` for `NULL`.
    pub(crate) fn set(&self, index: usize, size: usize, value: Option<&[u8]>) -> ClResult {
        let kind = self.kind(index)?;
        let value = match (kind, value) {
            (ArgKind::Value(_) | ArgKind::AnyValue, Some(bytes)) => {
                // "CL_INVALID_ARG_SIZE if arg_size does not match the size of the data type for an
                // argument that is not a memory object"
                let fits = if let ArgKind::Value(exact) = kind { size == exact } else { size > 0 };
                require(fits, CL_INVALID_ARG_SIZE)?;
                self.pool.set_bytes(index, bytes);
                return Ok(());
            }
            // "CL_INVALID_ARG_VALUE if arg_value specified is not a valid value."
            (ArgKind::Value(_) | ArgKind::AnyValue, None) => {
                return Err(ClError(CL_INVALID_ARG_VALUE));
            }
            (ArgKind::Local, value) => {
                // "... or if the argument is declared with the local qualifier and arg_value is not
                // NULL" (CL_INVALID_ARG_VALUE), "CL_INVALID_ARG_SIZE if arg_size is zero and the
                // argument is declared with the local qualifier".
                require(value.is_none(), CL_INVALID_ARG_VALUE)?;
                require(size > 0, CL_INVALID_ARG_SIZE)?;
                ArgValue::Local(size as u64)
            }
            (ArgKind::Buffer | ArgKind::Image { .. } | ArgKind::Pipe, value) => {
                // "CL_INVALID_ARG_SIZE ... or if the argument is a memory object and arg_size !=
                // sizeof(cl_mem)".
                require(size == HANDLE, CL_INVALID_ARG_SIZE)?;
                self.memory(index, kind, value.and_then(handle).unwrap_or(0))?
            }
            (ArgKind::Sampler, value) => {
                // "... or if arg_size != sizeof(cl_sampler) and the argument is a sampler."
                require(size == HANDLE, CL_INVALID_ARG_SIZE)?;
                // "CL_INVALID_SAMPLER for an argument declared to be of type sampler_t when the
                // specified arg_value is not a valid sampler object."
                let raw = value.and_then(handle).ok_or(ClError(CL_INVALID_SAMPLER))?;
                ArgValue::Sampler(Sampler::borrow(without_provenance_mut(raw))?.pool.clone())
            }
            (ArgKind::Queue, value) => {
                // "CL_INVALID_DEVICE_QUEUE for an argument declared to be of type queue_t when the
                // specified arg_value is not a valid device queue object."
                require(size == HANDLE, CL_INVALID_ARG_SIZE)?;
                let invalid = ClError(CL_INVALID_DEVICE_QUEUE);
                let raw = value.and_then(handle).ok_or(invalid)?;
                let queue = Queue::borrow(without_provenance_mut(raw)).map_err(|_| invalid)?;
                require(queue.is_on_device(), CL_INVALID_DEVICE_QUEUE)?;
                ArgValue::Queue(queue.pool.clone())
            }
            (ArgKind::Unknown, value) => return self.set_unknown(index, size, value),
        };
        self.pool.set(index, value);
        Ok(())
    }

    /// Sets an argument about which only the value tells anything.
    fn set_unknown(&self, index: usize, size: usize, value: Option<&[u8]>) -> ClResult {
        require(size > 0, CL_INVALID_ARG_SIZE)?;
        let Some(bytes) = value else {
            // Local memory or a `NULL` memory object: the driver gets the same call for both.
            self.pool.set(index, ArgValue::Local(size as u64));
            return Ok(());
        };
        let raw = handle(bytes).filter(|_| size == HANDLE).unwrap_or(0);
        if let Ok(mem) = Mem::borrow(without_provenance_mut(raw)) {
            self.note_origin(index, &mem);
            let value = match &mem.kind {
                Kind::Heap(heap) => ArgValue::Heap(heap.clone()),
                _ => ArgValue::Memory(Some(mem.pool.clone())),
            };
            self.pool.set(index, value);
        } else if let Ok(sampler) = Sampler::borrow(without_provenance_mut(raw)) {
            self.pool.set(index, ArgValue::Sampler(sampler.pool.clone()));
        } else {
            self.pool.set_bytes(index, bytes);
        }
        Ok(())
    }

    /// Returns a memory object for an argument that accepts one.
    fn memory(&self, index: usize, kind: ArgKind, raw: usize) -> ClResult<ArgValue> {
        if raw == 0 {
            // "If the argument is a buffer object, the arg_value pointer can be NULL or point to a
            // NULL value".
            require(kind == ArgKind::Buffer, CL_INVALID_MEM_OBJECT)?;
            return Ok(ArgValue::Memory(None));
        }
        // "CL_INVALID_MEM_OBJECT for an argument declared to be a memory object when the specified
        // arg_value is not a valid memory object."
        let mem = Mem::borrow(without_provenance_mut(raw))?;
        require(Arc::ptr_eq(&mem.context, &self.program.context), CL_INVALID_MEM_OBJECT)?;
        match (kind, &mem.kind) {
            (ArgKind::Buffer, Kind::Heap(heap)) => {
                self.note_origin(index, &mem);
                return Ok(ArgValue::Heap(heap.clone()));
            }
            (ArgKind::Buffer, Kind::Buffer) | (ArgKind::Pipe, Kind::Pipe { .. }) => {}
            (ArgKind::Image { image_type, reads, writes }, Kind::Image(image)) => {
                require(image.image_type == image_type, CL_INVALID_ARG_VALUE)?;
                // "CL_INVALID_ARG_VALUE if the argument is an image declared with the read_only
                // qualifier and arg_value refers to an image object created with cl_mem_flags of
                // CL_MEM_WRITE_ONLY or if the image argument is declared with the write_only
                // qualifier and arg_value refers to an image object created with cl_mem_flags of
                // CL_MEM_READ_ONLY."
                require(!reads || mem.flags & CL_MEM_WRITE_ONLY == 0, CL_INVALID_ARG_VALUE)?;
                require(!writes || mem.flags & CL_MEM_READ_ONLY == 0, CL_INVALID_ARG_VALUE)?;
            }
            _ => return Err(ClError(CL_INVALID_MEM_OBJECT)),
        }
        self.note_origin(index, &mem);
        Ok(ArgValue::Memory(Some(mem.pool.clone())))
    }

    /// Records the offset of a memory object that becomes an argument in its buffer.
    fn note_origin(&self, index: usize, mem: &Mem) {
        let origin = if mem.parent.is_some() { mem.origin } else { 0 };
        if origin == 0 && self.origin_bits.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut origins = self.origins.lock();
        if let Some(known) = origins.get_mut(index) {
            *known = origin;
        }
        self.origin_bits
            .store(origins.iter().fold(0, |bits, origin| bits | origin), Ordering::Relaxed);
    }

    /// Checks that a device can take the sub-buffers that are arguments.
    pub(crate) fn check_alignment(&self, device: &Device) -> ClResult {
        let bits = self.origin_bits.load(Ordering::Relaxed);
        // "CL_MISALIGNED_SUB_BUFFER_OFFSET if a sub-buffer object is specified as the value for an
        // argument that is a buffer object and the offset specified when the sub-buffer object is
        // created is not aligned to CL_DEVICE_MEM_BASE_ADDR_ALIGN value for device associated with
        // queue" (a power of two, in bits).
        let unit = || (device.number(CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8).max(1);
        require(bits == 0 || (bits as u64).is_multiple_of(unit()), CL_MISALIGNED_SUB_BUFFER_OFFSET)
    }

    /// Checks that a device has the local memory for a launch with the current arguments.
    pub(crate) fn check_local_memory(&self, device: &Ref<Device>) -> ClResult {
        let limits = self.limits(device)?;
        let mut args = 0u64;
        // Arguments of unknown kind are not counted, because they may not be local memory.
        if self.kinds.iter().any(|kind| matches!(kind, ArgKind::Local)) {
            self.pool.look_at_args(|index, value| {
                if let (Some(ArgKind::Local), Some(ArgValue::Local(bytes))) =
                    (self.kinds.get(index), value)
                {
                    args = args.saturating_add(*bytes);
                }
            });
        }
        if planted(Defect::LaunchLost) || planted(Defect::FailedLaunchStale) {
            return Ok(());
        }
        limits.local.check(args)
    }

    /// Implements the function `clSetKernelArgSVMPointer`.
    pub(crate) fn set_svm(&self, index: usize, address: usize) -> ClResult {
        let kind = self.kind(index)?;
        // "CL_INVALID_ARG_VALUE if arg_value specified is not a valid value."
        require(matches!(kind, ArgKind::Buffer | ArgKind::Unknown), CL_INVALID_ARG_VALUE)?;
        let area = self.program.context.svm.at(address);
        require(address == 0 || area.is_some(), CL_INVALID_ARG_VALUE)?;
        let memory = area.map(|area| area.pool.clone());
        self.pool.set(index, ArgValue::Svm { address: address as u64, memory });
        Ok(())
    }

    /// Implements `clGetKernelSubGroupInfo`. Asks the worker once for each question.
    pub(crate) fn sub_group_info(
        &self,
        device: &Ref<Device>,
        name: cl_kernel_sub_group_info,
        input: &[u8],
        room: usize,
    ) -> ClResult<Arc<[u8]>> {
        let query =
            SubGroupQuery { device: Arc::as_ptr(device).addr(), name, input: input.to_vec(), room };
        let known = self.sub_groups.lock();
        if let Some((_, answer)) = known.iter().find(|(known, _)| *known == query) {
            return Ok(answer.clone());
        }
        // The lock is not held, because the query waits.
        drop(known);
        let answer: Arc<[u8]> = self.pool.sub_group_info(&device.pool, name, input, room)?.into();
        self.sub_groups.lock().push((query, answer.clone()));
        Ok(answer)
    }
}

/// Returns the handle in an argument's value.
fn handle(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk().map(|word| usize::from_ne_bytes(*word))
}

/// Returns the driver's answer to a query of `clGetKernelWorkGroupInfo`. A sub-device without an
/// answer of its own takes that of its parent.
pub(crate) fn work_group_info<'a>(
    program: &Program,
    description: &'a KernelDescription,
    device: &Ref<Device>,
    name: cl_kernel_work_group_info,
) -> Option<&'a [u8]> {
    let known = description.work_group_info(&program.context.pool, &device.pool, name);
    known.or_else(|| work_group_info(program, description, device.parent.as_ref()?, name))
}

/// Returns whether the executable for a device or its parent has the kernel: a build for another
/// device may have had options that give it other kernels.
fn exists_for(program: &Program, description: &KernelDescription, device: &Ref<Device>) -> bool {
    let of_parent =
        || device.parent.as_ref().is_some_and(|parent| exists_for(program, description, parent));
    description.is_for(&program.context.pool, &device.pool) || of_parent()
}

fn limits(program: &Program, description: &KernelDescription, device: &Ref<Device>) -> Limits {
    let known = |name| work_group_info(program, description, device, name);
    let words = |bytes: &[u8]| -> Vec<usize> {
        bytes.as_chunks().0.iter().map(|word| usize::from_ne_bytes(*word)).collect()
    };
    let triple = |words: Vec<usize>, or| words.first_chunk().copied().unwrap_or([or; 3]);
    let group =
        known(CL_KERNEL_WORK_GROUP_SIZE).map(words).and_then(|words| words.first().copied());
    let group = group.filter(|group| *group > 0);
    let most =
        || usize::try_from(device.number(CL_DEVICE_MAX_WORK_GROUP_SIZE)).unwrap_or(usize::MAX);
    let dims = cl_uint::try_from(device.number(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS)).unwrap_or(3);
    let declared = known(CL_KERNEL_LOCAL_MEM_SIZE).and_then(|bytes| bytes.first_chunk().copied());
    let local = LocalMemory {
        declared: declared.map_or(0, cl_ulong::from_ne_bytes),
        most: Some(device.number(CL_DEVICE_LOCAL_MEM_SIZE))
            .filter(|most| *most > 0)
            .unwrap_or(u64::MAX),
    };
    let (major, minor) = version(device);
    Limits {
        dims: dims.clamp(1, 3),
        items: triple(device.words(CL_DEVICE_MAX_WORK_ITEM_SIZES), usize::MAX),
        group: group.unwrap_or_else(most),
        local,
        required: triple(
            known(CL_KERNEL_COMPILE_WORK_GROUP_SIZE).map(words).unwrap_or_default(),
            0,
        ),
        address: if device.number(CL_DEVICE_ADDRESS_BITS) == 32 {
            u64::from(u32::MAX)
        } else {
            u64::MAX
        },
        not_uniform: not_uniform(program, device, major),
        empty: (major, minor) >= (2, 1),
    }
}

/// Returns whether the work-groups of a program may differ in size on a device.
fn not_uniform(program: &Program, device: &Ref<Device>, major: u32) -> bool {
    let supports = match device.answer(CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT) {
        Some(_) => device.number(CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT) != 0,
        None => major == 2,
    };
    let options = program.build_options(device).unwrap_or_default();
    // "-cl-uniform-work-group-size: This requires that the global work-size be a multiple of the
    // work-group size". Without it this is not required from OpenCL C 2.0 on. For programs without
    // source the driver knows the version.
    let asked =
        ["CL2", "CL3"].iter().any(|version| options.contains(&format!("-cl-std={version}")));
    let may = asked || !matches!(program.origin, Origin::Source(_));
    supports && may && !options.contains("-cl-uniform-work-group-size")
}

/// Returns the major and minor OpenCL version of a device.
fn version(device: &Device) -> (u32, u32) {
    // "OpenCL<space><major_version.minor_version><space><vendor-specific information>"
    let text =
        String::from_utf8_lossy(device.answer(CL_DEVICE_VERSION).unwrap_or_default()).into_owned();
    let number = text.split(' ').nth(1).unwrap_or_default();
    let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.program.detach_kernel();
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("pool", &self.pool).finish_non_exhaustive()
    }
}

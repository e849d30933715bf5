//! What commands do, and how they are issued to a stream.

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

use penstock_cuda_sys::driver::{
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END,
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CUDA_MEMCPY3D, CUlaunchAttribute, CUlaunchConfig,
};
use penstock_process::Lock;
use penstock_wire::status::Status;

use super::driver::check;
use super::event::Event;
use super::library::Call;
use super::module::Function;
use super::parts::Layout;
use super::slot::SLOT_BYTES;
use super::stream::{Begun, Landing, Stream};
use crate::staging::Staged;

/// Most bytes of a write from memory that is not pinned that CUDA copies within the call. For more
/// bytes, CUDA waits for the device.
const TAKEN_AT_ONCE_MAX: usize = 64 << 10;

/// Memory that must live until the stream has a command.
pub(super) type Kept = Option<Arc<dyn Any + Send + Sync>>;

/// A command that has not been issued to its stream, or not all of it.
pub(super) struct Command {
    pub(super) work: Work,
    pub(super) waits: Vec<Arc<Event>>,
    pub(super) event: Option<Arc<Event>>,
    pub(super) _keep: [Kept; 2],
    /// Time at which it was enqueued, in ns; 0 if the queue does not profile.
    pub(super) queued: u64,
    /// Set when the first part is issued.
    pub(super) begun: Option<Begun>,
}

/// What a command does.
pub(super) enum Work {
    /// A marker or a barrier.
    Nothing,
    Launch(Launch),
    Library(Call),
    Copy {
        from: Layout,
        to: Layout,
        way: CopyWay,
    },
    Fill {
        to: u64,
        bytes: usize,
        pattern: Vec<u8>,
    },
    /// Writes bytes without gaps, of which `done` have been issued.
    Write {
        from: Staged,
        to: Layout,
        done: usize,
    },
    /// Reads bytes without gaps; `done` as above.
    Read {
        from: Layout,
        to: Arc<Lock<Staged>>,
        done: usize,
    },
}

/// Between which memories a copy is. Registered memory of the host has addresses on the GPU, too.
/// But its addresses in this process tell the driver that one of the GPU's copy engines can do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyWay {
    /// Both sides are used at the GPU's addresses.
    OnDevice,
    /// The source is memory of the host. `distance`: its address on the GPU less that in this
    /// process.
    FromHost { distance: u64 },
    /// The target is memory of the host.
    ToHost { distance: u64 },
}

impl CopyWay {
    /// Each side has its distance if it is memory of the host.
    pub(super) fn between(source: Option<u64>, target: Option<u64>) -> Self {
        match (source, target) {
            (Some(distance), None) => Self::FromHost { distance },
            (None, Some(distance)) => Self::ToHost { distance },
            (None, None) | (Some(_), Some(_)) => Self::OnDevice,
        }
    }
}

pub(super) struct Launch {
    pub(super) function: Arc<Function>,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(super) shared: u32,
    pub(super) params: Vec<u8>,
    /// View of a symmetric heap among the parameters.
    pub(super) heap: Kept,
}

/// How much of a command was issued to its stream.
pub(super) enum Given {
    /// All of it. The landing is left to be done when the device has finished the last part.
    All(Option<Landing>),
    /// No slot is free; the rest follows later.
    NoRoom,
}

impl Work {
    /// Issues the work to the stream, as much of it as possible. The device's context is current.
    pub(super) fn give(&mut self, stream: &Arc<Stream>, may_wait: bool) -> Result<Given, Status> {
        match self {
            Self::Nothing => Ok(Given::All(None)),
            Self::Launch(launch) => launch.give(stream).map(|()| Given::All(None)),
            Self::Library(call) => call.give(stream).map(|()| Given::All(None)),
            Self::Copy { from, to, way } => copy(stream, from, to, *way).map(|()| Given::All(None)),
            Self::Fill { to, bytes, pattern } => {
                fill(stream, *to, *bytes, pattern).map(|()| Given::All(None))
            }
            Self::Write { from, to, done } => write(stream, from, to, done, may_wait),
            Self::Read { from, to, done } => read(stream, from, to, done, may_wait),
        }
    }
}

impl Launch {
    fn give(&mut self, stream: &Arc<Stream>) -> Result<(), Status> {
        let cuda = stream.device().cuda();
        self.function.allow_shared(self.shared)?;
        let mut size = self.params.len();
        let mut extra = [
            std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_POINTER),
            self.params.as_mut_ptr().cast::<c_void>(),
            std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_BUFFER_SIZE),
            (&raw mut size).cast(),
            std::ptr::without_provenance_mut(CU_LAUNCH_PARAM_END),
        ];
        let extra = if size == 0 { std::ptr::null_mut() } else { extra.as_mut_ptr() };
        if self.runs_as_a_whole() {
            return self.give_whole(stream, extra);
        }
        let ([gx, gy, gz], [bx, by, bz]) = (self.grid, self.block);
        // SAFETY: the function lives with its module. The parameters have their size, which was
        // checked if the driver reports it, and the call copies them.
        check(unsafe {
            (cuda.cuLaunchKernel)(
                self.function.raw(),
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                self.shared,
                stream.raw(),
                std::ptr::null_mut(),
                extra,
            )
        })
    }
}

impl Launch {
    /// Returns whether the launch is cooperative: its blocks may wait for each other, so the driver
    /// has to start all or none. That holds for kernels with a heap whose blocks fit on the GPU.
    fn runs_as_a_whole(&self) -> bool {
        let blocks = self.grid.iter().map(|&size| u64::from(size)).fold(1, u64::saturating_mul);
        let device = self.function.module().device();
        // Cooperative launches of two devices on one GPU may run one after the other and wait for
        // ever.
        if self.heap.is_none()
            || blocks == 1
            || device.is_shared()
            || device.cuda().cuLaunchKernelEx.is_none()
        {
            return false;
        }
        let threads = self.block.iter().fold(1, |all: u32, &size| all.saturating_mul(size));
        device.attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH).is_ok_and(|can| can != 0)
            && self.function.resident_blocks(threads, self.shared).is_ok_and(|fit| blocks <= fit)
    }

    fn give_whole(&self, stream: &Arc<Stream>, extra: *mut *mut c_void) -> Result<(), Status> {
        let launch = stream.device().cuda().cuLaunchKernelEx.ok_or(Status::INVALID_OPERATION)?;
        // The first word of the attribute's union is an `int`: 1 for cooperative.
        let mut value = [0; 16];
        value[0] = 1;
        let mut attribute =
            CUlaunchAttribute { id: CU_LAUNCH_ATTRIBUTE_COOPERATIVE, pad: [0; 4], value };
        let config = CUlaunchConfig {
            gridDimX: self.grid[0],
            gridDimY: self.grid[1],
            gridDimZ: self.grid[2],
            blockDimX: self.block[0],
            blockDimY: self.block[1],
            blockDimZ: self.block[2],
            sharedMemBytes: self.shared,
            hStream: stream.raw(),
            attrs: &raw mut attribute,
            numAttrs: 1,
        };
        // SAFETY: as for a launch without attributes; `attribute` outlives the call.
        check(unsafe { launch(&config, self.function.raw(), std::ptr::null_mut(), extra) })
    }
}

fn write(
    stream: &Arc<Stream>,
    from: &mut Staged,
    to: &Layout,
    done: &mut usize,
    may_wait: bool,
) -> Result<Given, Status> {
    let whole = to.bytes();
    // Asked first: the device reads pinned bytes by itself, however few they are.
    if from.is_pinned() {
        upload(stream, from.as_ptr(), to)?;
        return Ok(Given::All(Some(Landing::Written(std::mem::take(from)))));
    }
    if whole <= TAKEN_AT_ONCE_MAX {
        upload(stream, from.as_ptr(), to)?;
        return Ok(Given::All(None));
    }
    let device = stream.device();
    loop {
        let part = to.part(*done, SLOT_BYTES);
        let Some(mut slot) = device.slots().take(device.cuda(), part.bytes(), may_wait)? else {
            return Ok(Given::NoRoom);
        };
        slot.fill(from.get(*done..*done + part.bytes()).ok_or(Status::INVALID_VALUE)?);
        upload(stream, slot.address(), &part)?;
        *done += part.bytes();
        let landing = Landing::Sent(slot);
        if *done == whole {
            return Ok(Given::All(Some(landing)));
        }
        stream.fly_alone(landing)?;
    }
}

fn read(
    stream: &Arc<Stream>,
    from: &Layout,
    to: &Arc<Lock<Staged>>,
    done: &mut usize,
    may_wait: bool,
) -> Result<Given, Status> {
    let whole = from.bytes();
    let mut target = to.lock();
    if target.is_pinned() {
        download(stream, from, target.as_mut_ptr())?;
        return Ok(Given::All(Some(Landing::Read(to.clone()))));
    }
    drop(target);
    let device = stream.device();
    loop {
        let part = from.part(*done, SLOT_BYTES);
        let Some(slot) = device.slots().take(device.cuda(), part.bytes(), may_wait)? else {
            return Ok(Given::NoRoom);
        };
        download(stream, &part, slot.address())?;
        let range = *done..*done + part.bytes();
        *done += part.bytes();
        let landing = Landing::Received { slot, to: to.clone(), range };
        if *done == whole {
            return Ok(Given::All(Some(landing)));
        }
        stream.fly_alone(landing)?;
    }
}

/// Uploads from host memory without gaps.
fn upload(stream: &Arc<Stream>, from: *const u8, to: &Layout) -> Result<(), Status> {
    let cuda = stream.device().cuda();
    if to.is_linear() {
        // SAFETY: the range lies within a buffer. `from` has the bytes until the device has read
        // them: it is pinned memory that the landing keeps, or CUDA copies it in the call.
        return check(unsafe {
            (cuda.cuMemcpyHtoDAsync)(to.address, from.cast(), to.bytes(), stream.raw())
        });
    }
    let mut order = boxes(to);
    order.srcMemoryType = CU_MEMORYTYPE_HOST;
    order.srcHost = from.cast();
    (order.srcPitch, order.srcHeight) = (to.extent[0], to.extent[1]);
    set_target(&mut order, to);
    // SAFETY: as above, for a box within a buffer.
    check(unsafe { (cuda.cuMemcpy3DAsync)(&order, stream.raw()) })
}

/// Downloads to host memory without gaps.
fn download(stream: &Arc<Stream>, from: &Layout, to: *mut u8) -> Result<(), Status> {
    let cuda = stream.device().cuda();
    if from.is_linear() {
        // SAFETY: the range is in a buffer; `to` is pinned, has room, and stays until the copy
        // ends.
        return check(unsafe {
            (cuda.cuMemcpyDtoHAsync)(to.cast(), from.address, from.bytes(), stream.raw())
        });
    }
    let mut order = boxes(from);
    set_source(&mut order, from);
    order.dstMemoryType = CU_MEMORYTYPE_HOST;
    order.dstHost = to.cast();
    (order.dstPitch, order.dstHeight) = (from.extent[0], from.extent[1]);
    // SAFETY: as above, for a box within a buffer.
    check(unsafe { (cuda.cuMemcpy3DAsync)(&order, stream.raw()) })
}

fn copy(stream: &Arc<Stream>, from: &Layout, to: &Layout, way: CopyWay) -> Result<(), Status> {
    let cuda = stream.device().cuda();
    let (flat_from, flat_to) = (from.merged(), to.merged());
    if flat_from.is_linear() && flat_to.is_linear() {
        let (to, from, bytes) = (flat_to.address, flat_from.address, flat_from.bytes());
        // SAFETY: both ranges lie within buffers, which stay until the stream is done. Memory of
        // the host is registered as long as its buffer lives.
        return check(unsafe {
            match way {
                CopyWay::OnDevice => (cuda.cuMemcpyDtoDAsync)(to, from, bytes, stream.raw()),
                CopyWay::FromHost { distance } => {
                    (cuda.cuMemcpyHtoDAsync)(to, host(from, distance), bytes, stream.raw())
                }
                CopyWay::ToHost { distance } => {
                    (cuda.cuMemcpyDtoHAsync)(host(to, distance), from, bytes, stream.raw())
                }
            }
        });
    }
    let mut order = boxes(from);
    set_source(&mut order, from);
    set_target(&mut order, to);
    match way {
        CopyWay::OnDevice => {}
        CopyWay::FromHost { distance } => {
            order.srcMemoryType = CU_MEMORYTYPE_HOST;
            order.srcHost = host(from.address, distance);
        }
        CopyWay::ToHost { distance } => {
            order.dstMemoryType = CU_MEMORYTYPE_HOST;
            order.dstHost = host(to.address, distance);
        }
    }
    // SAFETY: both boxes lie within buffers, as above.
    check(unsafe { (cuda.cuMemcpy3DAsync)(&order, stream.raw()) })
}

/// Returns the address in this process of memory of the host that the GPU has at an address.
fn host(at: u64, distance: u64) -> *mut c_void {
    let address = usize::try_from(at.wrapping_sub(distance)).unwrap_or_default();
    std::ptr::with_exposed_provenance_mut(address)
}

/// Describes a copy of a box of this size; the caller sets source and target.
fn boxes(layout: &Layout) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: 0,
        srcHost: std::ptr::null(),
        srcDevice: 0,
        srcArray: std::ptr::null_mut(),
        reserved0: std::ptr::null_mut(),
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: 0,
        dstHost: std::ptr::null_mut(),
        dstDevice: 0,
        dstArray: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: layout.extent[0],
        Height: layout.extent[1],
        Depth: layout.extent[2],
    }
}

fn set_source(order: &mut CUDA_MEMCPY3D, from: &Layout) {
    order.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    order.srcDevice = from.address;
    order.srcPitch = from.row_pitch;
    order.srcHeight = rows_between_slices(from);
}

fn set_target(order: &mut CUDA_MEMCPY3D, to: &Layout) {
    order.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    order.dstDevice = to.address;
    order.dstPitch = to.row_pitch;
    order.dstHeight = rows_between_slices(to);
}

/// Returns the rows from slice to slice: "slice_pitch must be a multiple of row_pitch". A single
/// slice needs no more than its own rows.
fn rows_between_slices(layout: &Layout) -> usize {
    (layout.slice_pitch / layout.row_pitch.max(1)).max(layout.extent[1])
}

/// Fills `bytes` bytes, a multiple of the pattern's length.
fn fill(stream: &Arc<Stream>, to: u64, bytes: usize, pattern: &[u8]) -> Result<(), Status> {
    let cuda = stream.device().cuda();
    match shortest(pattern) {
        // SAFETY: the range lies within a buffer.
        &[byte] => check(unsafe { (cuda.cuMemsetD8Async)(to, byte, bytes, stream.raw()) }),
        &[a, b] if to.is_multiple_of(2) => {
            let value = u16::from_ne_bytes([a, b]);
            // SAFETY: as above, and the address is aligned.
            check(unsafe { (cuda.cuMemsetD16Async)(to, value, bytes / 2, stream.raw()) })
        }
        &[a, b, c, d] if to.is_multiple_of(4) => {
            let value = u32::from_ne_bytes([a, b, c, d]);
            // SAFETY: as above, and the address is aligned.
            check(unsafe { (cuda.cuMemsetD32Async)(to, value, bytes / 4, stream.raw()) })
        }
        pattern => {
            // Writes the pattern once, then doubles what is there.
            let start = pattern.as_ptr().cast();
            // SAFETY: as above; CUDA copies so few bytes within the call.
            check(unsafe { (cuda.cuMemcpyHtoDAsync)(to, start, pattern.len(), stream.raw()) })?;
            let mut there = pattern.len();
            while there < bytes {
                let more = there.min(bytes - there);
                // SAFETY: both ranges lie within the buffer and do not overlap.
                check(unsafe {
                    (cuda.cuMemcpyDtoDAsync)(to + there as u64, to, more, stream.raw())
                })?;
                there += more;
            }
            Ok(())
        }
    }
}

/// Halves the pattern as long as both halves are equal.
fn shortest(pattern: &[u8]) -> &[u8] {
    let mut shortest = pattern;
    while shortest.len().is_multiple_of(2) {
        let (left, right) = shortest.split_at(shortest.len() / 2);
        if left != right {
            break;
        }
        shortest = left;
    }
    shortest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_shortened() {
        assert_eq!(shortest(&[0; 16]), &[0]);
        assert_eq!(shortest(&[1, 2, 1, 2, 1, 2, 1, 2]), &[1, 2]);
        assert_eq!(shortest(&[1, 2, 3, 4]), &[1, 2, 3, 4]);
        assert_eq!(shortest(&[1, 1, 1, 2]), &[1, 1, 1, 2]);
        assert_eq!(shortest(&[9]), &[9]);
    }
}

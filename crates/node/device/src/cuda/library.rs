//! Calls of NVIDIA's cuBLAS and cuFFT, in the turn of a stream.

use std::sync::OnceLock;

use penstock_cuda_sys::driver::{CUdeviceptr, CUstream, CUstream_st};
use penstock_libraries::nvidia::{self, Ground, Handle, Plan, Plans};
use penstock_process::variable;
use penstock_wire::library::{Kind, Libraries, LibraryCall};
use penstock_wire::status::Status;

use super::address::Address;
use super::command::Kept;
use super::device::Device;
use super::driver::{check, driver_version, is_ours};
use super::reaper::{self, Reaper, Remains};
use super::stream::Stream;
use crate::account::Share;

/// A call whose operands lie in buffers of the stream's context.
pub(super) struct Call {
    pub(super) call: LibraryCall,
    /// Addresses on the device, 0 for operands without bytes.
    pub(super) addresses: Vec<u64>,
    /// The buffers, which must stay until the stream has the call.
    #[allow(dead_code, reason = "the buffers are only kept to be dropped")]
    pub(super) keep: Vec<Kept>,
}

impl Call {
    /// Gives the call to the stream. The device's context is current.
    pub(super) fn give(&self, stream: &Stream) -> Result<(), Status> {
        let mut kits = stream.kits().lock();
        let version = version(stream.device());
        let raw = stream.raw().cast();
        // The first call may need more memory than is free.
        reaper::with_memory(stream.device(), || {
            // SAFETY: the context is current here, and `Retired` makes it current before it drops
            // handle and plans, and then the stream. The operands lie within buffers, as checked. A
            // buffer whose object is dropped is freed when the device has finished all that it was
            // given. Addresses in lists lead to the context of this process, which has one client,
            // as those of the client's kernels do.
            unsafe {
                match (Kind::of(&self.call), &mut *kits) {
                    (Kind::Blas, Kits { blas: Some(handle), .. }) => {
                        handle.call(&self.call, &self.addresses)
                    }
                    (Kind::Blas, Kits { blas, .. }) => {
                        let handle = blas.insert(Handle::new(version, raw)?);
                        handle.call(&self.call, &self.addresses)
                    }
                    (Kind::Fft, Kits { fft, area, .. }) => {
                        let plans = match fft {
                            Some(plans) => plans,
                            none => none.insert(Plans::new(version, raw)?),
                        };
                        let mut ground = OfStream { stream, area };
                        plans.call(&self.call, &self.addresses, &mut ground)
                    }
                }
            }
        })
    }
}

fn version(device: &Device) -> u32 {
    u32::try_from(driver_version(device.cuda())).unwrap_or(0)
}

/// Returns the calls that the device serves; `None` if it has no library for any of them.
pub(super) fn served(device: &Device) -> Option<Libraries> {
    static SERVED: OnceLock<Option<Libraries>> = OnceLock::new();
    let find = || {
        let is_present = |kind: &Kind| {
            // NVIDIA's libraries do not run on Penstock's own driver, so that one needs libraries
            // that the user names.
            let named = match kind {
                Kind::Blas => variable::LIBCUBLAS.is_set(),
                Kind::Fft => variable::LIBCUFFT.is_set(),
            };
            (named || !is_ours()) && nvidia::is_present(*kind, version(device))
        };
        let present: Vec<Kind> = Kind::ALL.into_iter().filter(is_present).collect();
        (!present.is_empty())
            .then(|| present.into_iter().fold(Libraries::default(), Libraries::with))
    };
    *SERVED.get_or_init(find)
}

/// What the libraries keep for one stream, each made by its first call.
#[derive(Default)]
pub(super) struct Kits {
    blas: Option<Handle>,
    fft: Option<Plans>,
    /// Where the transforms of the stream work, one after the other.
    area: Option<Area>,
}

impl Kits {
    /// Ends a stream and what the libraries keep for it. The device finishes the work of a stream
    /// that ends. The libraries have memory that this work uses, and freeing it waits for the whole
    /// device, so the reaper does that.
    pub(super) fn end(mut self, device: &'static Device, stream: Address<CUstream_st>) {
        let is_plain = self.blas.is_none() && self.fft.is_none();
        // The memory ends after the plans that use it.
        let area = self.area.take();
        let retired = Retired::new(device, (self, RawStream { device, raw: stream }));
        if is_plain {
            drop(retired);
        } else {
            retired.leave();
        }
        drop(area);
    }
}

/// Device memory that counts for the client.
struct Area {
    device: &'static Device,
    address: CUdeviceptr,
    bytes: usize,
    share: Option<Share>,
}

impl Area {
    /// Allocates memory and clears it in the turn of the stream: kernels of the client can read it.
    fn new(device: &'static Device, stream: CUstream, bytes: usize) -> Result<Self, Status> {
        let share = Share::take(u64::try_from(bytes).map_err(|_| Status::INVALID_VALUE)?)?;
        let mut address = 0;
        // SAFETY: the output location outlives the call, and the device's context is current.
        check(unsafe { (device.cuda().cuMemAlloc)(&raw mut address, bytes) })?;
        let area = Self { device, address, bytes, share: Some(share) };
        // SAFETY: the memory was allocated above.
        check(unsafe { (device.cuda().cuMemsetD8Async)(address, 0, bytes, stream) })?;
        Ok(area)
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if let Some(share) = self.share.take() {
            Reaper::take(self.device, Remains::Memory(self.address, share));
        }
    }
}

/// What a stream does for its plans.
struct OfStream<'a> {
    stream: &'a Stream,
    area: &'a mut Option<Area>,
}

impl Ground for OfStream<'_> {
    fn area(&mut self, bytes: usize) -> Result<u64, Status> {
        let enough = self.area.as_ref().filter(|area| area.bytes >= bytes);
        if let Some(area) = enough {
            return Ok(area.address);
        }
        // The reaper frees the smaller one behind the transforms that use it. It goes first, so
        // that the larger one may have its memory.
        *self.area = None;
        let larger = Area::new(self.stream.device(), self.stream.raw(), bytes)?;
        Ok(self.area.insert(larger).address)
    }

    fn retire(&mut self, plan: Plan) {
        Retired::new(self.stream.device(), plan).leave();
    }
}

/// A stream that has ended.
struct RawStream {
    device: &'static Device,
    raw: Address<CUstream_st>,
}

impl Drop for RawStream {
    fn drop(&mut self) {
        // SAFETY: this object owns the stream, and nothing uses it any more. Its context is
        // current, see `Retired`.
        let destroyed = check(unsafe { (self.device.cuda().cuStreamDestroy)(self.raw.get()) });
        _ = destroyed;
    }
}

/// Something that ends in the device's context, or never if the context has failed.
struct Retired<T> {
    device: &'static Device,
    what: Option<T>,
}

impl<T: Send + 'static> Retired<T> {
    fn new(device: &'static Device, what: T) -> Self {
        Self { device, what: Some(what) }
    }

    /// Ends it when the device has finished all that it was given.
    fn leave(self) {
        Reaper::take(self.device, Remains::Kept(Box::new(self)));
    }
}

impl<T> Drop for Retired<T> {
    fn drop(&mut self) {
        let what = self.what.take();
        if self.device.enter().is_ok() {
            drop(what);
        } else {
            // Without its context, the libraries cannot free anything.
            std::mem::forget(what);
        }
    }
}

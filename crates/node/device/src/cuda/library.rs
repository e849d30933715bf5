//! Calls of NVIDIA's cuBLAS and cuFFT, in the turn of a stream.

use std::sync::OnceLock;

use penstock_cuda_sys::driver::CUstream_st;
use penstock_libraries::nvidia::{self, Handle, Plans};
use penstock_process::variable;
use penstock_wire::library::{Kind, Libraries, LibraryCall};
use penstock_wire::status::Status;

use super::address::Address;
use super::command::Kept;
use super::device::Device;
use super::driver::{check, driver_version, is_ours};
use super::reaper;
use super::stream::Stream;

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
                    (Kind::Fft, Kits { fft: Some(plans), .. }) => {
                        plans.call(&self.call, &self.addresses)
                    }
                    (Kind::Blas, Kits { blas, .. }) => {
                        let handle = blas.insert(Handle::new(version, raw)?);
                        handle.call(&self.call, &self.addresses)
                    }
                    (Kind::Fft, Kits { fft, .. }) => {
                        let plans = fft.insert(Plans::new(version, raw)?);
                        plans.call(&self.call, &self.addresses)
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
}

impl Kits {
    pub(super) fn is_empty(&self) -> bool {
        self.blas.is_none() && self.fft.is_none()
    }
}

/// A stream that has ended, with its handle. Both end when the device has finished their work.
pub(super) struct Retired {
    pub(super) device: &'static Device,
    pub(super) kits: Kits,
    pub(super) stream: Address<CUstream_st>,
}

impl Drop for Retired {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            drop(std::mem::take(&mut self.kits));
            // SAFETY: this object owns the stream, and nothing uses it any more.
            let destroyed =
                check(unsafe { (self.device.cuda().cuStreamDestroy)(self.stream.get()) });
            _ = destroyed;
        } else {
            // Without its context, the libraries cannot free anything.
            std::mem::forget(std::mem::take(&mut self.kits));
        }
    }
}

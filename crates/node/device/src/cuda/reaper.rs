//! Frees resources on a thread per device, once the device has finished all that it was given.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};

use penstock_cuda_sys::driver::{CUdeviceptr, CUmod_st};
use penstock_wire::status::Status;

use super::address::Address;
use super::device::{self, Device};
use crate::account::Share;

/// A resource to be freed.
pub(super) enum Remains {
    /// Device memory, and the share that it counts for.
    Memory(CUdeviceptr, Share),
    Module(Address<CUmod_st>),
    /// Something that is dropped when nothing uses it any more.
    Kept(Box<dyn Send>),
    /// Reports that everything before it is freed.
    Mark(Sender<()>),
}

/// The channel to a device's freeing thread.
#[derive(Default)]
pub(super) struct Reaper {
    way: OnceLock<Option<Sender<Remains>>>,
}

impl Reaper {
    /// Frees a resource soon, or now if there is no thread.
    pub(super) fn take(device: &'static Device, remains: Remains) {
        let way = device.reaper().way.get_or_init(|| {
            let (way, remains) = channel();
            let run = move || run(device, &remains);
            penstock_process::start("penstock-cuda-free", run).is_ok().then_some(way)
        });
        match way {
            Some(way) => {
                if let Err(unsent) = way.send(remains) {
                    reap(device, vec![unsent.0]);
                }
            }
            // If no thread could be started, the caller waits.
            None => reap(device, vec![remains]),
        }
    }

    /// Waits until everything passed in so far is freed. Returns false if there never was anything.
    pub(super) fn drain(device: &'static Device) -> bool {
        if device.reaper().way.get().is_none() {
            return false;
        }
        let (tell, told) = channel();
        Self::take(device, Remains::Mark(tell));
        told.recv().is_ok()
    }
}

fn run(device: &'static Device, remains: &Receiver<Remains>) {
    // The channel is never closed, because devices are never freed.
    while let Ok(first) = remains.recv() {
        let mut all = vec![first];
        all.extend(remains.try_iter());
        reap(device, all);
    }
}

fn reap(device: &'static Device, all: Vec<Remains>) {
    let entered = device.enter();
    // `cuMemFree` may wait for the commands that use the memory, but does not promise it.
    // SAFETY: the context is current. If it has failed, nothing runs in it any more.
    let _ = entered.map(|()| unsafe { (device.cuda().cuCtxSynchronize)() });
    for remains in all {
        match remains {
            Remains::Memory(address, share) => {
                // SAFETY: the memory's object is gone, so this is the last use. A failure is
                // ignored.
                let _ = entered.map(|()| unsafe { (device.cuda().cuMemFree)(address) });
                drop(share);
            }
            Remains::Module(module) => {
                // SAFETY: as above; the module's kernels are gone too.
                let _ = entered.map(|()| unsafe { (device.cuda().cuModuleUnload)(module.get()) });
            }
            Remains::Kept(kept) => drop(kept),
            // The receiver may be gone.
            Remains::Mark(tell) => _ = tell.send(()),
        }
    }
}

/// Waits until everything that was released is freed. Returns false if nothing was ever released.
pub(crate) fn drain() -> bool {
    let drained = device::all().iter().filter(|device| Reaper::drain(device));
    drained.count() > 0
}

/// Runs a call that needs device memory. If there is too little, drains the reaper and calls again.
pub(super) fn with_memory<T>(
    device: &'static Device,
    mut call: impl FnMut() -> Result<T, Status>,
) -> Result<T, Status> {
    match call() {
        Err(Status::MEM_OBJECT_ALLOCATION_FAILURE) if Reaper::drain(device) => call(),
        result => result,
    }
}

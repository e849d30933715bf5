//! Gives back what commands may still use: in a thread of its own, after waiting for all that the device has been given.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use penstock_cuda_sys::driver::{CUdeviceptr, CUmod_st};
use penstock_wire::status::Status;

use super::device::Device;
use super::mapped::Mapped;
use super::object::Address;
use super::platform;

/// What is to be given back.
pub(super) enum Remains {
    /// Memory, and who wants to hear that it is gone.
    Memory(CUdeviceptr, Box<dyn FnOnce() + Send>),
    Module(Address<CUmod_st>),
    /// Memory of the host, and who wants to hear that nothing uses it.
    Mapped(Arc<Mapped>, Box<dyn FnOnce() + Send>),
    /// Nothing: tells when all before is gone.
    Mark(Sender<()>),
}

/// The way to a device's thread.
#[derive(Default)]
pub(super) struct Reaper {
    way: OnceLock<Option<Sender<Remains>>>,
}

impl Reaper {
    /// Gives something back, now or soon.
    pub(super) fn take(device: &'static Device, remains: Remains) {
        let way = device.reaper().way.get_or_init(|| {
            let (way, remains) = channel();
            let thread = std::thread::Builder::new().name("penstock-cuda-free".to_owned());
            thread.spawn(move || run(device, &remains)).is_ok().then_some(way)
        });
        match way {
            Some(way) => {
                if let Err(unsent) = way.send(remains) {
                    reap(device, vec![unsent.0]);
                }
            }
            // Without a thread, whoever lets go waits.
            None => reap(device, vec![remains]),
        }
    }

    /// Waits until all that was given back is gone. False where nothing was.
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
    // The way is never closed: the device stays.
    while let Ok(first) = remains.recv() {
        let mut all = vec![first];
        all.extend(remains.try_iter());
        reap(device, all);
    }
}

fn reap(device: &'static Device, all: Vec<Remains>) {
    let entered = device.enter();
    // `cuMemFree` may wait for the commands that use the memory; that it does must not be relied on.
    // SAFETY: the context is current. Where it has failed, nothing runs in it any more.
    let _ = entered.map(|()| unsafe { (device.cuda().cuCtxSynchronize)() });
    for remains in all {
        match remains {
            Remains::Memory(address, then) => {
                // SAFETY: the memory's object is gone, so this is the last use. Failures have no one to be told to.
                let _ = entered.map(|()| unsafe { (device.cuda().cuMemFree)(address) });
                then();
            }
            Remains::Module(module) => {
                // SAFETY: as above: its kernels are gone too.
                let _ = entered.map(|()| unsafe { (device.cuda().cuModuleUnload)(module.get()) });
            }
            Remains::Mapped(mapped, then) => {
                drop(mapped);
                then();
            }
            // Whoever asked may have given up.
            Remains::Mark(tell) => _ = tell.send(()),
        }
    }
}

/// Waits until all that was released is gone. False where nothing was.
pub(crate) fn drain() -> bool {
    let drained = platform::known_devices().iter().filter(|device| Reaper::drain(device));
    drained.count() > 0
}

/// Runs something that needs memory; where there is none, once more when what was given back is gone.
pub(super) fn with_memory<T>(
    device: &'static Device,
    mut call: impl FnMut() -> Result<T, Status>,
) -> Result<T, Status> {
    match call() {
        Err(Status::MEM_OBJECT_ALLOCATION_FAILURE) if Reaper::drain(device) => call(),
        result => result,
    }
}

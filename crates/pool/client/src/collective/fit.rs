//! Checks that devices have room for all work-groups of a collective launch at the same time.

use std::sync::Arc;

use penstock_ggas::{LaunchDevice, NotResident, check_resident, resident_groups};
use penstock_wire::{IndexSpace, Status, cuda};

use crate::error::{Error, Result, refused};
use crate::heap::{Heap, Pe, described};
use crate::kernel::Kernel;
use crate::pool::Device;
use crate::queue::Queue;

/// The part of a collective launch for one device of the heap.
#[derive(Clone, Copy, Debug)]
pub struct HeapLaunch<'a> {
    /// A queue of the device.
    pub queue: &'a Arc<Queue>,
    pub kernel: &'a Arc<Kernel>,
    pub space: IndexSpace,
}

/// The work-groups of one PE's kernel.
struct Fit {
    pe: usize,
    groups: u64,
    /// Number of work-groups that the GPU runs at the same time, or `None` for devices of other
    /// drivers, which tell this per device.
    groups_max: Option<u64>,
}

impl Heap {
    /// Checks that all work-groups can run at the same time.
    pub(super) fn check_resident(&self, launches: &[HeapLaunch<'_>]) -> Result<()> {
        let mut fits = Vec::with_capacity(launches.len());
        for &HeapLaunch { queue, kernel, space } in launches {
            let Some(pe) = self.pe_of(queue.device()) else { continue };
            let groups = groups_of(space)?;
            let groups_max = match queue.device().is_cuda() {
                true => Some(resident_blocks(kernel, queue.device(), space)?),
                false => None,
            };
            fits.push(Fit { pe, groups, groups_max });
        }
        self.check_blocks(&fits)?;
        self.check_groups(&fits)
    }

    /// Checks the devices of OpenCL drivers.
    fn check_groups(&self, fits: &[Fit]) -> Result<()> {
        let fits = || fits.iter().filter(|fit| fit.groups_max.is_none());
        let groups_max = |device: &Device| resident_groups(|name| device.info(name));
        let launch_device = |pe: &Pe| LaunchDevice {
            thread_pool: (pe.device.node(), pe.device.platform()),
            groups_max: groups_max(&pe.device),
            // CPU devices of one platform on one node run on the same cores, with one set of
            // threads.
            groups_max_whole: groups_max(root(&pe.device)),
        };
        let devices = fits().filter_map(|fit| self.pes.get(fit.pe));
        let devices: Vec<_> = devices.map(launch_device).collect();
        let groups = fits().map(|fit| fit.groups).max().unwrap_or(0);
        check_resident(&devices, groups).map_err(|refusal| {
            let pe = fits().nth(refusal.pe).map_or(refusal.pe, |fit| fit.pe);
            self.not_resident(groups, NotResident { pe, ..refusal })
        })
    }

    /// Checks the GPUs. Each has its own room, which depends on the kernel.
    fn check_blocks(&self, fits: &[Fit]) -> Result<()> {
        let gpu = |fit: &Fit| {
            let device = &self.pes.get(fit.pe)?.device;
            Some((device.node(), device.gpu()?.uuid?))
        };
        for fit in fits {
            let Some(groups_max) = fit.groups_max else { continue };
            if fit.groups > groups_max {
                let refusal = NotResident { pe: fit.pe, sharing: 1, groups_max };
                return Err(self.not_resident(fit.groups, refusal));
            }
            // One GPU may appear as several devices. How much of it each kernel takes is unknown,
            // so the one with the least room counts for all.
            let same =
                || fits.iter().filter(|other| other.groups_max.is_some() && gpu(other) == gpu(fit));
            let together = same().map(|other| other.groups).fold(0, u64::saturating_add);
            let room = same().filter_map(|other| other.groups_max).min().unwrap_or(0);
            if together > room {
                let device =
                    self.pes.get(fit.pe).map(|pe| described(&pe.device)).unwrap_or_default();
                return Err(refused(&format!(
                    "{} other PEs are the same GPU as PE {} ({device}); together they have \
                     {together} work-groups, and the GPU runs {room} at a time; use fewer \
                     work-groups, or fewer of these devices",
                    same().count() - 1,
                    fit.pe
                )));
            }
        }
        Ok(())
    }

    fn not_resident(
        &self,
        groups: u64,
        NotResident { pe, sharing, groups_max }: NotResident,
    ) -> Error {
        let device = self.pes.get(pe).map(|pe| &*pe.device);
        if groups > groups_max {
            let is_cuda = device.is_some_and(Device::is_cuda);
            let device = device.map(described).unwrap_or_default();
            let (known, advice) = if is_cuda {
                (
                    "as its driver says",
                    "with fewer threads, registers or shared memory each there may be more",
                )
            } else {
                ("for sure", "for example by a larger local work size")
            };
            return refused(&format!(
                "{groups} work-groups on PE {pe} ({device}), which runs {groups_max} at a time \
                 {known}; use at most {groups_max} work-groups, {advice}"
            ));
        }
        let host = device.map_or("", Device::host);
        refused(&format!(
            "{sharing} devices of one platform of node {host} with {groups} work-groups each, \
             which run {groups_max} work-groups at a time together; use fewer work-groups, fewer \
             of these devices, or a daemon for each"
        ))
    }
}

/// Returns the number of work-groups of a launch. None is an error.
fn groups_of(space: IndexSpace) -> Result<u64> {
    match space.groups() {
        None => Err(refused(
            "a collective launch needs a local work size, because the number of work-groups must \
             be known; give one",
        )),
        Some(0) => Err(refused(
            "a collective launch needs work-items; give a global size that is not zero",
        )),
        Some(groups) => Ok(groups),
    }
}

/// Returns the number of blocks of such a launch that the GPU runs at the same time, as its driver
/// says for the kernel's present arguments. Waits for the worker when it is asked for the first
/// time.
fn resident_blocks(kernel: &Kernel, device: &Device, space: IndexSpace) -> Result<u64> {
    let threads = u32::try_from(space.group_items().unwrap_or(1)).unwrap_or(u32::MAX);
    let threads = threads.min(cuda::RESIDENT_THREADS_MAX - 1);
    match kernel.resident(device, threads) {
        Ok(blocks) => Ok(blocks),
        // Only one block is certain.
        Err(Error::Refused { status: Status::INVALID_VALUE, .. }) => Ok(1),
        Err(error) => Err(error),
    }
}

fn root(device: &Arc<Device>) -> &Arc<Device> {
    device.parent().map_or(device, root)
}

//! What the workers reported about the builds of a program.

use std::sync::Arc;

use penstock_wire::cuda::Global;
use penstock_wire::describe::{BuildReport, Info, KernelDescription};

/// Reports of the last build for each device.
#[derive(Default)]
pub(super) struct Built {
    pub(super) devices: Vec<((usize, u32), Info)>,
    /// Kernels that any device has. [`KernelDescription::work_group`] tells which devices.
    pub(super) kernels: Vec<Arc<KernelDescription>>,
    pub(super) info: Info,
    /// Variables of a CUDA module.
    pub(super) globals: Vec<Global>,
}

impl Built {
    /// Adds the reports of one build. The reports of other devices stay, even if this build failed,
    /// because a program may build for each device separately.
    pub(super) fn take(&mut self, reports: Vec<(usize, BuildReport)>) {
        let mut kernels = Vec::new();
        for (place, report) in reports {
            for (device, info) in report.devices {
                self.forget(place, device);
                self.devices.push(((place, device), info));
            }
            self.info = report.info;
            self.globals = report.globals;
            merge(&mut kernels, report.kernels.into_iter().map(|kernel| at_place(kernel, place)));
        }
        // If builds disagree about a kernel, the last one counts.
        let older = std::mem::replace(&mut self.kernels, kernels);
        merge(&mut self.kernels, older);
    }

    /// Removes what earlier builds reported for a device, and the kernels that no other device has.
    fn forget(&mut self, place: usize, device: u32) {
        self.devices.retain(|(known, _)| *known != (place, device));
        let key = device_key(place, device);
        for kernel in &mut self.kernels {
            if kernel.work_group.iter().any(|(known, _)| *known == key) {
                Arc::make_mut(kernel).work_group.retain(|(known, _)| *known != key);
            }
        }
        self.kernels.retain(|kernel| !kernel.work_group.is_empty());
    }
}

/// Merges the reports of other devices about the same kernels.
fn merge(
    known: &mut Vec<Arc<KernelDescription>>,
    more: impl IntoIterator<Item = Arc<KernelDescription>>,
) {
    for kernel in more {
        match known.iter_mut().find(|it| it.name == kernel.name) {
            Some(it) => {
                Arc::make_mut(it).work_group.extend(Arc::unwrap_or_clone(kernel).work_group)
            }
            None => known.push(kernel),
        }
    }
}

/// Returns the kernel that a place reports, with device numbers that are distinct from those of
/// other places.
fn at_place(mut kernel: KernelDescription, place: usize) -> Arc<KernelDescription> {
    for (device, _) in &mut kernel.work_group {
        *device = device_key(place, *device);
    }
    Arc::new(kernel)
}

/// Returns a device's number in a merged [`KernelDescription::work_group`]. It contains the place,
/// because nodes number their devices independently. 16 bits each hold 65,536 places and devices.
pub(super) const fn device_key(place: usize, device: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a context over 65,536 places is not made")]
    let place = place as u32;
    (place << 16) | (device & 0xffff)
}

/// Returns the place in a number that [`device_key`] made.
pub(super) const fn place_of_key(key: u32) -> usize {
    (key >> 16) as usize
}

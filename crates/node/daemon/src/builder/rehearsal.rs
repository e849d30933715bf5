//! Which builds are rehearsed, and what the client hears of a rehearsal that failed.

use std::sync::Arc;

use penstock_cl_sys::{CL_DEVICE_NAME, CL_DEVICE_VERSION, CL_DRIVER_VERSION};
use penstock_device as device;
use penstock_wire::describe::{BuildReport, DeviceDescription, NodeDescription, find};
use rustc_hash::FxHashSet;

use super::builders::Builders;
use super::failure::Place;
use super::limits::BuildLimits;
use super::task::{Goal, Task};

/// What a session needs to rehearse builds.
#[derive(Debug)]
pub(crate) struct Rehearsals {
    builders: Builders,
    node: String,
    devices: Vec<Facts>,
}

/// A device of the node.
#[derive(Debug)]
struct Facts {
    name: String,
    /// What tells the device and its driver from others.
    driver: Vec<u8>,
    /// Whether builds for it are rehearsed.
    is_rehearsed: bool,
}

impl Rehearsals {
    /// `devices` are those of the description, in its order.
    pub(crate) fn new(
        builders: Builders,
        description: &NodeDescription,
        devices: &[device::Device],
    ) -> Self {
        let described = description.platforms.iter().flat_map(|platform| &platform.devices);
        let facts = described.zip(devices).map(|(description, device)| Facts {
            name: device.name(),
            driver: driver_of(description),
            // The builder would need memory of a GPU, which it may not get, and an entry in what
            // the driver counts. Drivers of CPUs have the compiler that a client can crash most
            // easily, because it makes code for the process that it runs in.
            is_rehearsed: device.shares_host_memory(),
        });
        Self { builders, node: description.host.clone(), devices: facts.collect() }
    }

    /// Returns the limits of each build.
    pub(crate) fn limits(&self) -> BuildLimits {
        self.builders.limits()
    }

    /// Returns the rehearsal of a build for `devices`, or `None` if such builds are not rehearsed.
    /// `wholes` are the indices of the same devices or, for parts, of the whole devices.
    pub(crate) fn of(
        self: &Arc<Self>,
        goal: Goal,
        devices: Vec<u32>,
        wholes: Vec<u32>,
    ) -> Option<Rehearsal> {
        let facts = wholes.iter().map(|index| self.devices.get(usize::try_from(*index).ok()?));
        let facts: Vec<&Facts> = facts.collect::<Option<_>>()?;
        let first = facts.first().filter(|_| facts.iter().all(|it| it.is_rehearsed))?;
        let place = Place { node: self.node.clone(), device: first.name.clone() };
        let drivers = facts.iter().flat_map(|it| it.driver.iter().copied()).collect();
        let (all, task) = (self.clone(), Task { devices: without_repeats(wholes), goal });
        Some(Rehearsal { all, task, drivers, place, devices })
    }
}

/// A build that is rehearsed before the worker performs it.
#[derive(Debug)]
pub(crate) struct Rehearsal {
    all: Arc<Rehearsals>,
    task: Task,
    drivers: Vec<u8>,
    place: Place,
    /// Devices of the build, as the client knows them.
    devices: Vec<u32>,
}

impl Rehearsal {
    /// Sets the options of a build or compilation: those with which the worker calls the driver,
    /// which name the folders of included files as the worker and the builder see them.
    pub(crate) fn with_options(mut self, options: Option<&str>) -> Self {
        if let Goal::Build(making) | Goal::Compile(making) = &mut self.task.goal {
            making.options = options.map(str::to_owned);
        }
        self
    }

    /// Waits until the compiler has come to an end, and returns at once if it did so earlier.
    ///
    /// # Errors
    /// The compiler did not come to an end. Returns what the client hears of the build.
    pub(crate) fn perform(&self) -> Result<(), Box<BuildReport>> {
        let builders = &self.all.builders;
        builders.rehearse(&self.task, &self.drivers).map_err(|failure| {
            tracing::info!(?failure, device = self.place.device, "a program is not built");
            Box::new(failure.report(&self.task, &self.devices, &self.place, &builders.limits()))
        })
    }
}

fn without_repeats(mut devices: Vec<u32>) -> Vec<u32> {
    let mut met = FxHashSet::default();
    devices.retain(|device| met.insert(*device));
    devices
}

fn driver_of(device: &DeviceDescription) -> Vec<u8> {
    let names = [CL_DEVICE_NAME, CL_DEVICE_VERSION, CL_DRIVER_VERSION];
    names.iter().flat_map(|name| find(&device.info, *name).unwrap_or_default()).copied().collect()
}

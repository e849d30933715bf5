//! Kernel objects: a built-in kernel and its arguments.

use std::sync::{Arc, Weak};

use penstock_cl_sys::{
    CL_KERNEL_ARG_ACCESS_NONE, CL_KERNEL_ARG_ADDRESS_GLOBAL, CL_KERNEL_ARG_ADDRESS_PRIVATE,
    CL_KERNEL_ARG_TYPE_CONST, CL_KERNEL_ARG_TYPE_NONE, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
    CL_KERNEL_LOCAL_MEM_SIZE, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
    CL_KERNEL_PRIVATE_MEM_SIZE, CL_KERNEL_WORK_GROUP_SIZE,
};
use penstock_process::Lock;
use penstock_wire::IndexSpace;
use penstock_wire::describe::{ArgDescription, Info, KernelDescription, find};
use penstock_wire::status::Status;

use super::builtin::{Builtin, Launch, Takes, Value, WORK_GROUP_MAX};
use super::memory::{Buffer, buffer};
use crate::answer::{sizes, ulong};
use crate::driver::{Arg, Device, KernelDriver};

/// An argument that is set.
#[derive(Clone)]
enum Set {
    /// Weak: "clSetKernelArg does not update the reference count for memory objects".
    Buffer(Weak<Buffer>),
    Word(u32),
}

pub(super) struct Kernel {
    builtin: &'static Builtin,
    args: Lock<Vec<Option<Set>>>,
}

impl Kernel {
    pub(super) fn new(builtin: &'static Builtin) -> Self {
        Self { builtin, args: Lock::new(vec![None; builtin.args.len()]) }
    }

    /// Makes a launch with the current arguments.
    pub(super) fn launch(&self, space: &IndexSpace) -> Result<Launch, Status> {
        // "CL_INVALID_KERNEL_ARGS if the kernel argument values have not been specified."
        let value = |set: &Option<Set>| match set {
            Some(Set::Buffer(buffer)) => buffer.upgrade().map(Value::Buffer),
            Some(Set::Word(word)) => Some(Value::Word(*word)),
            None => None,
        };
        let values: Option<Vec<_>> = self.args.lock().iter().map(value).collect();
        Launch::new(self.builtin, space, values.ok_or(Status::INVALID_KERNEL_ARGS)?)
    }
}

impl KernelDriver for Kernel {
    fn duplicate(&self) -> Result<Box<dyn KernelDriver>, Status> {
        let args = Lock::new(self.args.lock().clone());
        Ok(Box::new(Self { builtin: self.builtin, args }))
    }

    fn set(&self, index: u32, arg: Arg<'_>) -> Result<(), Status> {
        let index = usize::try_from(index).map_err(|_| Status::INVALID_ARG_INDEX)?;
        let (_, takes) = self.builtin.args.get(index).ok_or(Status::INVALID_ARG_INDEX)?;
        let set = match (takes, arg) {
            (Takes::Word, Arg::Bytes(bytes)) => {
                // "CL_INVALID_ARG_SIZE if arg_size does not match the size of the data type".
                let bytes = bytes.try_into().map_err(|_| Status::INVALID_ARG_SIZE)?;
                Some(Set::Word(u32::from_ne_bytes(bytes)))
            }
            (Takes::Source | Takes::Buffer, Arg::Mem(mem)) => {
                let buffer = mem.map(buffer).transpose()?;
                buffer.map(|buffer| Set::Buffer(Arc::downgrade(&buffer)))
            }
            _ => return Err(Status::INVALID_ARG_VALUE),
        };
        if let Some(slot) = self.args.lock().get_mut(index) {
            *slot = set;
        }
        Ok(())
    }

    fn arg_count(&self) -> usize {
        self.builtin.args.len()
    }

    fn work_group_info(&self, _device: &Device, name: u32) -> Result<Vec<u8>, Status> {
        find(&work_group(), name).map(<[u8]>::to_vec).ok_or(Status::INVALID_VALUE)
    }
}

/// Describes a kernel for the devices with these indices in the node.
pub(super) fn describe(builtin: &Builtin, devices: &[(u32, Device)]) -> KernelDescription {
    let describe = |(name, takes): &(&str, Takes)| {
        let (address, type_name) = match takes {
            Takes::Source | Takes::Buffer => (CL_KERNEL_ARG_ADDRESS_GLOBAL, "uint*"),
            Takes::Word => (CL_KERNEL_ARG_ADDRESS_PRIVATE, "uint"),
        };
        let is_const = *takes == Takes::Source;
        ArgDescription {
            address,
            access: CL_KERNEL_ARG_ACCESS_NONE,
            type_qualifier: if is_const {
                CL_KERNEL_ARG_TYPE_CONST
            } else {
                CL_KERNEL_ARG_TYPE_NONE
            },
            type_name: type_name.to_owned(),
            name: (*name).to_owned(),
        }
    };
    KernelDescription {
        name: builtin.name.to_owned(),
        args: builtin.args.iter().map(describe).collect(),
        arg_info: true,
        work_group: devices.iter().map(|(index, _)| (*index, work_group())).collect(),
        ..KernelDescription::default()
    }
}

/// Returns the answers of `clGetKernelWorkGroupInfo`.
fn work_group() -> Info {
    vec![
        (CL_KERNEL_WORK_GROUP_SIZE, sizes(&[usize::try_from(WORK_GROUP_MAX).unwrap_or(1)])),
        (CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizes(&[0; 3])),
        (CL_KERNEL_LOCAL_MEM_SIZE, ulong(0)),
        (CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, sizes(&[1])),
        (CL_KERNEL_PRIVATE_MEM_SIZE, ulong(0)),
    ]
}

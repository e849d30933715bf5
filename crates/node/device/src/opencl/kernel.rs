use std::ffi::{CString, c_void};
use std::sync::{Arc, Weak};

use penstock_cl_sys::{
    CL_KERNEL_ARG_ACCESS_NONE, CL_KERNEL_ARG_ACCESS_QUALIFIER, CL_KERNEL_ARG_ADDRESS_LOCAL,
    CL_KERNEL_ARG_ADDRESS_PRIVATE, CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_ARG_NAME,
    CL_KERNEL_ARG_TYPE_NAME, CL_KERNEL_ARG_TYPE_QUALIFIER, CL_KERNEL_NUM_ARGS, cl_kernel,
    cl_program,
};
use penstock_process::{Guard, Lock};
use penstock_wire::IndexSpace;
use penstock_wire::describe::ArgDescription;
use penstock_wire::limits;
use penstock_wire::status::Status;

use super::api::{self, function};
use super::context::Context;
use super::device::Device;
use super::memory::{self, Mem};
use super::owned::OwnedKernel;
use super::queue::Queue;
use super::sampler::Sampler;
use crate::driver;
use crate::driver::{Arg, KernelDriver};
use crate::region;

/// Kind of an argument, as far as the driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// Anything: the driver gave no argument info.
    Unknown,
    /// A value; the size is known for OpenCL's own types.
    Value(Option<usize>),
    Memory,
    Local,
    Sampler,
    Queue,
}

#[derive(Debug)]
pub(super) struct Kernel {
    raw: OwnedKernel,
    context: Context,
    /// "clSetKernelArg is not safe to be called from any thread on the same kernel object": locked
    /// while arguments are set and while the kernel is enqueued.
    args: Lock<Args>,
}

#[derive(Debug, Default)]
pub(super) struct Args {
    takes: Vec<Takes>,
    /// Weak references to the memory arguments. The driver keeps none, so a launch checks them.
    mems: Vec<Option<Weak<memory::Inner>>>,
    /// Index and size of local-memory arguments.
    locals: Vec<(usize, u64)>,
    /// Index and value of samplers. Few kernels have any.
    samplers: Vec<(usize, driver::Sampler)>,
    /// Memory that is kept while a launch is enqueued; a field, so that its allocation is reused.
    held: Vec<Mem>,
}

impl Kernel {
    /// `clCreateKernel`.
    pub(super) fn new(context: &Context, program: cl_program, name: &str) -> Result<Self, Status> {
        let create = function!(clCreateKernel)?;
        let name = CString::new(name).map_err(|_| Status::INVALID_KERNEL_NAME)?;
        let mut code = 0;
        // SAFETY: the program lives; the name ends with a NUL.
        let raw = unsafe { create(program, name.as_ptr(), &mut code) };
        let raw = OwnedKernel::take(api::made(raw, code)?);
        let kernel = Self { raw, context: context.clone(), args: Lock::default() };
        let takes = kernel.takes();
        *kernel.args() = Args { mems: vec![None; takes.len()], takes, ..Args::default() };
        Ok(kernel)
    }

    fn set_raw(&self, index: u32, arg: Arg<'_>) -> Result<(), Status> {
        match arg {
            Arg::Bytes([]) => Err(Status::INVALID_ARG_SIZE),
            Arg::Bytes(bytes) => self.set_value(index, bytes.len(), bytes.as_ptr().cast()),
            Arg::Mem(mem) => {
                let handle = mem.map(memory::raw).transpose()?;
                self.set_handle(index, handle.unwrap_or(std::ptr::null_mut()))
            }
            Arg::Sampler(sampler) => self.set_handle(index, sampler.driver::<Sampler>()?.raw()),
            Arg::Queue(queue) => self.set_handle(index, queue.driver::<Queue>()?.raw()),
            Arg::Local(bytes) => self.set_value(index, region::narrow(bytes)?, std::ptr::null()),
            Arg::Svm(address) => {
                self.context.platform().needs(2, 0)?;
                let set = function!(clSetKernelArgSVMPointer)?;
                let address = std::ptr::with_exposed_provenance::<c_void>(region::narrow(address)?);
                // SAFETY: the driver only keeps the address; a kernel may use any address anyway.
                api::check(unsafe { set(self.raw(), index, address) })
            }
        }
    }

    fn set_handle<T>(&self, index: u32, handle: *mut T) -> Result<(), Status> {
        self.set_value(index, size_of::<*mut T>(), (&raw const handle).cast())
    }

    fn set_value(&self, index: u32, size: usize, value: *const c_void) -> Result<(), Status> {
        let set = function!(clSetKernelArg)?;
        // SAFETY: the value has its size or is null; the driver copies it; the caller holds the
        // lock.
        api::check(unsafe { set(self.raw(), index, size, value) })
    }

    pub(super) fn raw(&self) -> cl_kernel {
        self.raw.raw()
    }

    pub(super) fn args(&self) -> Guard<'_, Args> {
        self.args.lock()
    }

    pub(super) fn ask(&self, name: u32) -> Result<Vec<u8>, Status> {
        let get = function!(clGetKernelInfo)?;
        // SAFETY: the kernel lives, and `query` passes a location of the given size.
        api::query(|size, value, true_size| unsafe {
            get(self.raw(), name, size, value, true_size)
        })
    }

    /// Returns `clGetKernelArgInfo` of every argument; `None` if any of them lacks it.
    pub(super) fn arg_descriptions(&self) -> Option<Vec<ArgDescription>> {
        (0..self.arg_count())
            .map(|index| self.arg_description(api::count(index).ok()?).ok())
            .collect()
    }

    fn arg_description(&self, index: u32) -> Result<ArgDescription, Status> {
        // The compiler may not have kept the names; what matters is the address space.
        Ok(ArgDescription {
            address: self.arg_number(index, CL_KERNEL_ARG_ADDRESS_QUALIFIER)?,
            access: self.arg_number(index, CL_KERNEL_ARG_ACCESS_QUALIFIER)?,
            type_qualifier: self.arg_number(index, CL_KERNEL_ARG_TYPE_QUALIFIER)?,
            type_name: self.arg_text(index, CL_KERNEL_ARG_TYPE_NAME),
            name: self.arg_text(index, CL_KERNEL_ARG_NAME),
        })
    }

    fn arg_number<T: api::Number>(&self, index: u32, name: u32) -> Result<T, Status> {
        let get = function!(clGetKernelArgInfo)?;
        // SAFETY: the kernel lives, and `number` passes a location of the given size.
        api::number(|size, value, true_size| unsafe {
            get(self.raw(), index, name, size, value, true_size)
        })
    }

    fn arg_text(&self, index: u32, name: u32) -> String {
        let Ok(get) = function!(clGetKernelArgInfo) else { return String::new() };
        // SAFETY: the kernel lives, and `query` passes a location of the given size.
        let answer = api::query(|size, value, true_size| unsafe {
            get(self.raw(), index, name, size, value, true_size)
        });
        answer.map(|bytes| api::text(&bytes)).unwrap_or_default()
    }

    fn takes(&self) -> Vec<Takes> {
        let Some(args) = self.arg_descriptions() else {
            return vec![Takes::Unknown; self.arg_count()];
        };
        let takes = |arg: &ArgDescription| match arg.address {
            CL_KERNEL_ARG_ADDRESS_LOCAL => Takes::Local,
            CL_KERNEL_ARG_ADDRESS_PRIVATE => match arg.type_name.as_str() {
                "sampler_t" => Takes::Sampler,
                "queue_t" => Takes::Queue,
                // Images and pipes: not all drivers call them global. Only they have an access
                // qualifier.
                _ if arg.access != CL_KERNEL_ARG_ACCESS_NONE => Takes::Memory,
                name => Takes::Value(value_bytes(name)),
            },
            _ => Takes::Memory,
        };
        args.iter().map(takes).collect()
    }
}

impl KernelDriver for Kernel {
    fn duplicate(&self) -> Result<Box<dyn KernelDriver>, Status> {
        self.context.platform().needs(2, 1)?;
        let clone = function!(clCloneKernel)?;
        let args = self.args();
        let mut code = 0;
        // SAFETY: the kernel lives.
        let raw = unsafe { clone(self.raw(), &mut code) };
        let raw = OwnedKernel::take(api::made(raw, code)?);
        let (takes, mems, locals) = (args.takes.clone(), args.mems.clone(), args.locals.clone());
        let args = Args { takes, mems, locals, samplers: args.samplers.clone(), held: Vec::new() };
        Ok(Box::new(Self { raw, context: self.context.clone(), args: Lock::new(args) }))
    }

    fn set(&self, index: u32, arg: Arg<'_>) -> Result<(), Status> {
        let mut args = self.args();
        let place = usize::try_from(index).map_err(|_| Status::INVALID_ARG_INDEX)?;
        let &takes = args.takes.get(place).ok_or(Status::INVALID_ARG_INDEX)?;
        let fits = match arg {
            Arg::Bytes(bytes) => match takes {
                // "CL_INVALID_ARG_SIZE if arg_size does not match the size of the data type": PoCL
                // 3.1 does not check.
                Takes::Value(Some(size)) if size != bytes.len() => {
                    return Err(Status::INVALID_ARG_SIZE);
                }
                // Before OpenCL C 2.0 a program may define its own type `queue_t`.
                Takes::Queue => bytes.len() != size_of::<cl_kernel>(),
                takes => matches!(takes, Takes::Value(_)),
            },
            Arg::Mem(_) | Arg::Svm(_) => matches!(takes, Takes::Memory),
            Arg::Sampler(_) => matches!(takes, Takes::Sampler),
            Arg::Local(_) => matches!(takes, Takes::Local),
            Arg::Queue(_) => matches!(takes, Takes::Queue),
        };
        if !fits && takes != Takes::Unknown {
            return Err(Status::INVALID_ARG_VALUE);
        }
        self.set_raw(index, arg)?;
        if let Some(slot) = args.mems.get_mut(place) {
            *slot = match arg {
                Arg::Mem(Some(mem)) => Some(Arc::downgrade(&mem.driver::<Mem>()?.0)),
                _ => None,
            };
        }
        if let Arg::Local(bytes) = arg {
            args.locals.retain(|(known, _)| *known != place);
            args.locals.push((place, bytes));
        }
        if let Arg::Sampler(sampler) = arg {
            args.samplers.retain(|(known, _)| *known != place);
            args.samplers.push((place, sampler.clone()));
        }
        Ok(())
    }

    fn set_exec_info(&self, name: u32, value: &[u8]) -> Result<(), Status> {
        const SVM_PTRS: u32 = 0x11B6;
        self.context.platform().needs(2, 0)?;
        if name == SVM_PTRS {
            // These addresses are in this process's memory, which the driver may not know as its
            // own. The device works on that memory, so nothing has to move.
            return Ok(());
        }
        let set = function!(clSetKernelExecInfo)?;
        let _args = self.args();
        // SAFETY: the kernel lives, and the value has its size.
        api::check(unsafe { set(self.raw(), name, value.len(), value.as_ptr().cast()) })
    }

    fn arg_count(&self) -> usize {
        let bytes = self.ask(CL_KERNEL_NUM_ARGS).unwrap_or_default();
        let count = bytes.first_chunk().map_or(0, |&bytes| u32::from_ne_bytes(bytes));
        count.min(limits::ARG_INDEX_MAX) as usize
    }

    fn work_group_info(&self, device: &driver::Device, name: u32) -> Result<Vec<u8>, Status> {
        let get = function!(clGetKernelWorkGroupInfo)?;
        let device = device.driver::<Device>()?.raw();
        // SAFETY: kernel and device live, and `query` passes a location of the given size.
        api::query(|size, value, true_size| unsafe {
            get(self.raw(), device, name, size, value, true_size)
        })
    }

    fn sub_group_info(
        &self,
        device: &driver::Device,
        name: u32,
        input: &[u8],
        output_bytes: usize,
    ) -> Result<Vec<u8>, Status> {
        self.context.platform().needs(2, 1)?;
        let get = function!(clGetKernelSubGroupInfo)?;
        let device = device.driver::<Device>()?.raw();
        let mut output = vec![0; output_bytes];
        let mut true_size = 0;
        let start = if input.is_empty() { std::ptr::null() } else { input.as_ptr() };
        // SAFETY: kernel and device live; input and output have their sizes.
        api::check(unsafe {
            get(
                self.raw(),
                device,
                name,
                input.len(),
                start.cast(),
                output.len(),
                output.as_mut_ptr().cast(),
                &mut true_size,
            )
        })?;
        output.truncate(true_size);
        Ok(output)
    }

    fn suggested_local_size(
        &self,
        queue: &driver::Queue,
        space: &IndexSpace,
    ) -> Result<[u64; 3], Status> {
        const NAME: &std::ffi::CStr = c"clGetKernelSuggestedLocalWorkSizeKHR";
        let platform = self.context.platform();
        let find = function!(clGetExtensionFunctionAddressForPlatform)?;
        // SAFETY: the platform lives; the name ends with a NUL.
        let address = unsafe { find(platform.raw(), NAME.as_ptr()) };
        if address.is_null() {
            return Err(Status::INVALID_OPERATION);
        }
        // SAFETY: the extension defines this type for the function of this name.
        let suggest = unsafe {
            std::mem::transmute::<
                *mut c_void,
                penstock_cl_sys::clGetKernelSuggestedLocalWorkSizeKHR_t,
            >(address)
        };
        let suggest = suggest.ok_or(Status::INVALID_OPERATION)?;
        let queue = queue.driver::<Queue>()?;
        let args = self.args();
        let (offset, global) = (region::triple(space.offset)?, region::triple(space.global)?);
        let mut local = [1_usize; 3];
        // SAFETY: queue and kernel live; the lists have three entries, and the space has been
        // checked, so `dims` is at most 3.
        let code = unsafe {
            suggest(
                queue.raw(),
                self.raw(),
                space.dims,
                offset.as_ptr(),
                global.as_ptr(),
                local.as_mut_ptr(),
            )
        };
        drop(args);
        api::check(code)?;
        Ok(local.map(|size| size as u64))
    }
}

impl Args {
    /// Refuses more local memory among the arguments than `local_max`, which the device has.
    /// "CL_OUT_OF_RESOURCES if there is a failure to queue the execution instance of kernel ...
    /// because of insufficient resources": PoCL 3.1 aborts instead.
    pub(super) fn check_local(&self, local_max: u64) -> Result<(), Status> {
        if self.locals.is_empty() {
            return Ok(());
        }
        let all = self.locals.iter().try_fold(0_u64, |sum, (_, bytes)| sum.checked_add(*bytes));
        if all.is_some_and(|all| all <= local_max) { Ok(()) } else { Err(Status::OUT_OF_RESOURCES) }
    }

    /// Keeps all memory arguments until [`Self::let_go`]. Fails if one of them is gone.
    pub(super) fn hold(&mut self) -> Result<(), Status> {
        for mem in self.mems.iter().flatten() {
            match mem.upgrade() {
                Some(mem) => self.held.push(Mem(mem)),
                None => {
                    self.let_go();
                    return Err(Status::INVALID_KERNEL_ARGS);
                }
            }
        }
        Ok(())
    }

    /// Returns the samplers among the arguments. PoCL 3.1 keeps none of them for a launch, so the
    /// caller must keep them until the launch has ended: "after the ... commands queued for
    /// execution on a queue(s) that use sampler have finished, the sampler object is deleted".
    pub(super) fn samplers(&self) -> Vec<driver::Sampler> {
        self.samplers.iter().map(|(_, sampler)| sampler.clone()).collect()
    }

    pub(super) fn let_go(&mut self) {
        self.held.clear();
    }
}

/// Returns the size of OpenCL's own scalar and vector types.
fn value_bytes(type_name: &str) -> Option<usize> {
    let name = type_name.trim_end_matches(|c: char| c.is_ascii_digit());
    let scalar = match name {
        "char" | "uchar" => 1,
        "short" | "ushort" | "half" => 2,
        "int" | "uint" | "float" => 4,
        "long" | "ulong" | "double" => 8,
        _ => return None,
    };
    let lanes = match type_name.get(name.len()..)? {
        "" => 1,
        "2" => 2,
        // "a 3-component vector has the size of a 4-component one"
        "3" | "4" => 4,
        "8" => 8,
        "16" => 16,
        _ => return None,
    };
    Some(scalar * lanes)
}

#[cfg(test)]
mod tests {
    use super::value_bytes;

    #[test]
    fn types_have_their_size() {
        assert_eq!(value_bytes("uint"), Some(4));
        assert_eq!(value_bytes("double16"), Some(128));
        assert_eq!(value_bytes("char3"), Some(4));
        assert_eq!(value_bytes("struct s"), None);
        assert_eq!(value_bytes("int7"), None);
        assert_eq!(value_bytes(""), None);
    }
}

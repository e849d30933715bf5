//! GPUs that a node drives through CUDA's own driver, see [`penstock_wire::cuda`]. The driver loads
//! modules as they are, chooses device addresses, and reports attributes. Everything else is as for
//! devices that run translated code.

use std::sync::{Arc, Mutex, PoisonError};

use penstock_client::{
    Context as PoolContext, Device as PoolDevice, KernelInfo as _, Memory, Program as PoolProgram,
};
use penstock_cuda_sys::driver::*;
use penstock_ptx::fatbin::{self, ImageKind};
use penstock_ptx::ir::{Entry, FunctionId, Global, Module as Described, Param};
use penstock_ptx::translate::Argument;
use penstock_wire::cuda;
use penstock_wire::describe::KernelDescription;

use super::arena::{Arena, Space};
use super::device::{Device, Facts};
use super::program::{Build, Made, Program, Refusal};
use super::{log, reserved};
use crate::edge::{CuResult, of_error, of_status};

/// A symbol that only our library has: it keeps a worker from taking our library for a driver.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, missing_docs, reason = "a name in a symbol table")]
pub static penstock_libcuda: u32 = 1;

/// Smallest allocation that is asked of the driver, in bytes: each takes about 100 µs.
const GROW_BYTES: u64 = 32 << 20;
/// How often the driver is asked for other addresses if the program already uses those that it
/// returned.
const TRIES_MAX: usize = 4;
/// Message after the last attempt.
const TAKEN: &str = "a device has memory at addresses that this process uses too";
/// Arguments of a kernel that CUDA's own driver has loaded, in the order of [`cuda::ARG_PARAMS`]
/// and the constants after it.
const ARGUMENTS: [Argument; 3] = [Argument::Params, Argument::Shared, Argument::Heap];
const _: () = assert!(cuda::ARG_PARAMS == 0 && cuda::ARG_SHARED == 1 && cuda::ARG_HEAP == 2);
/// Value of OpenCL's `CL_PROGRAM_BUILD_LOG`.
const BUILD_LOG: u32 = 0x1183;
/// Value of OpenCL's `CL_MEM_READ_WRITE`.
const READ_WRITE: u64 = 1;

/// Returns an attribute from the driver, or `None` if it does not describe the GPU alone.
pub(crate) fn attribute(device: &Device, attribute: u32) -> Option<i32> {
    // Attributes that depend on the access to the GPU differ here: mapped host memory, managed
    // memory, handles of other processes.
    let is_physical = matches!(attribute, 1..=13 | 16..=18 | 32..=39 | 50 | 75 | 76 | 81 | 82 | 87 | 97 | 106 | 108 | 111);
    if is_physical { told(&device.pool, attribute) } else { None }
}

fn told(device: &PoolDevice, attribute: u32) -> Option<i32> {
    let bytes = device.info(cuda::DEVICE_ATTRIBUTE + attribute)?;
    bytes.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

fn size(device: &PoolDevice, attribute: u32) -> u32 {
    told(device, attribute).and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
}

/// Returns the shared memory in bytes that a block may use without and with opting in.
pub(crate) fn shared_bytes(device: &Device) -> (u32, u32) {
    let plain = size(&device.pool, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    (plain, plain.max(size(&device.pool, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)))
}

/// Replaces values of OpenCL's queries by those of the driver.
pub(crate) fn correct(facts: &mut Facts, device: &PoolDevice) {
    if !device.is_cuda() {
        return;
    }
    facts.threads_max = size(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    facts.block_max = [
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
    ]
    .map(|attribute| size(device, attribute));
    facts.clock_khz = size(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    facts.shared_bytes = size(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    facts.pci = [
        CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
        CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
    ]
    .map(|attribute| size(device, attribute));
}

/// Allocates an arena with room for `bytes`. The driver chooses its addresses. Waits for the
/// worker.
pub(crate) fn arena(context: &Arc<PoolContext>, device: u64, bytes: u64) -> CuResult<Arena> {
    let mut taken = Vec::new();
    loop {
        let memory = |size| {
            Memory::buffer(context, READ_WRITE, size, None)
                .and_then(|it| Ok((it.device_address()?, it)))
        };
        let wanted = bytes.max(GROW_BYTES);
        // Asks for `bytes` alone if the driver has no room for more.
        let made =
            memory(wanted).or_else(|error| if wanted > bytes { memory(bytes) } else { Err(error) });
        let (base, memory) = match made {
            Ok(made) => made,
            // The rejected arenas may hold all memory of the device. Using one of them is better
            // than failing.
            Err(error) => {
                return taken.pop().inspect(|_| log_taken()).ok_or_else(|| of_error(&error));
            }
        };
        let arena = Arena { base, size: memory.size(), memory };
        if reserved::reserve(device, arena.base, arena.size) {
            return Ok(arena);
        }
        if taken.len() == TRIES_MAX {
            log_taken();
            return Ok(arena);
        }
        // Kept until another arena is found, so that the driver does not return the same addresses
        // again.
        taken.push(arena);
    }
}

fn log_taken() {
    log::once("addresses", format_args!("{TAKEN}"));
}

/// Frees an arena that nothing uses any more.
pub(crate) fn release(device: u64, arena: Arena) {
    reserved::release(device, arena.base, arena.size);
    drop(arena);
}

/// Loads a module. The driver reports what is in it.
pub(crate) fn load(device: &Device, bytes: &[u8]) -> Result<Program, Refusal> {
    let devices = std::slice::from_ref(&device.pool);
    let refused =
        |error: &penstock_client::Error, log: String| Refusal { code: of_error(error), log };
    let (program, statuses) = PoolProgram::with_binaries(&device.context, &[(&device.pool, bytes)])
        .map_err(|error| refused(&error, String::new()))?;
    if let Some(status) = statuses.first().filter(|status| status.is_error()) {
        return Err(Refusal { code: of_status(*status), log: String::new() });
    }
    let names = variables(bytes);
    let options = if names.is_empty() {
        String::new()
    } else {
        format!("{}{}", cuda::GLOBALS_OPTION, names.join(","))
    };
    if let Err(error) = program.build(devices, options.as_str()) {
        let log = program.build_info(&device.pool, BUILD_LOG).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
        return Err(refused(&error, log));
    }
    let made = program.kernels();
    let entries = made.iter().map(|kernel| entry(device, kernel)).collect();
    let told = program.build_info(&device.pool, cuda::BUILD_GLOBALS);
    let globals = told.and_then(|bytes| cuda::globals(&bytes)).unwrap_or_default();
    let globals = globals.into_iter().map(|global| Global {
        name: global.name,
        // Relative to address 0, so the offset is the address.
        offset: global.address,
        size: global.size,
        is_const: false,
        opaque: None,
    });
    let module = Described::without_code(entries, globals.collect());
    let kernels = made.iter().map(|kernel| {
        let (description, arguments) = (kernel.clone(), ARGUMENTS.to_vec());
        (
            kernel.name.clone(),
            Made { description, arguments, local_bytes: 0, dynamic_bytes_at: None },
        )
    });
    let build = Build { arenas: Vec::new(), kernels: kernels.collect(), program: program.clone() };
    Ok(Program::of_driver(module, build))
}

/// Returns the names of a module's variables as its PTX lists them. The driver finds variables only
/// by name.
fn variables(bytes: &[u8]) -> Vec<String> {
    let images = fatbin::images(bytes).unwrap_or_default();
    let mut names = Vec::new();
    for image in images.iter().filter(|image| image.kind == ImageKind::Ptx) {
        let text = image.bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let module =
            std::str::from_utf8(text).ok().and_then(|text| penstock_ptx::module::parse(text).ok());
        let globals = module
            .iter()
            .flat_map(|module| module.globals().iter().map(|global| global.name.clone()));
        names.extend(globals.filter(|name| !name.is_empty()));
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// Builds a kernel's entry from what the driver reports.
fn entry(device: &Device, kernel: &Arc<KernelDescription>) -> Entry {
    let info = |name| kernel.work_group_info(&device.context, &device.pool, name);
    let number = |attribute: u32| {
        let bytes =
            info(cuda::KERNEL_ATTRIBUTE + attribute).and_then(|bytes| bytes.first_chunk::<4>());
        bytes.and_then(|bytes| u32::try_from(i32::from_ne_bytes(*bytes)).ok()).unwrap_or(0)
    };
    let words: &[[u8; 8]] = info(cuda::KERNEL_PARAMS).map_or(&[], |bytes| bytes.as_chunks().0);
    let narrow = |word: &[u8; 8]| u32::try_from(u64::from_le_bytes(*word)).unwrap_or(u32::MAX);
    let pairs = words.as_chunks::<2>().0.iter();
    let params: Vec<Param> = pairs
        .map(|[offset, size]| Param { offset: narrow(offset), size: narrow(size), align: 1 })
        .collect();
    let end = |param: &Param| param.offset.saturating_add(param.size);
    Entry {
        name: kernel.name.clone(),
        params_size: params.iter().map(end).max().unwrap_or(0),
        params,
        static_shared: number(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
        local_bytes: number(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
        max_threads: Some(number(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK))
            .filter(|threads| *threads > 0),
        required: None,
        uses_dynamic_shared: true,
        function: FunctionId(0),
        callees: Vec::new(),
        recursive: false,
    }
}

/// Returns an attribute of a kernel from the driver.
pub(crate) fn kernel_attribute(
    device: &Device,
    kernel: &KernelDescription,
    attribute: u32,
) -> Option<i32> {
    let bytes = kernel.work_group_info(
        &device.context,
        &device.pool,
        cuda::KERNEL_ATTRIBUTE + attribute,
    )?;
    bytes.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

/// Addresses of one module's variables that are also buffers of the pool, so that copies can use
/// them.
#[derive(Debug, Default)]
pub(crate) struct Variables(Mutex<Vec<u64>>);

impl Variables {
    /// Registers a variable as part of the device's memory, once. Waits for the worker.
    pub(crate) fn add(&self, device: &Device, owner: u64, address: u64, size: u64) -> CuResult {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if size == 0 || known.contains(&address) {
            return Ok(());
        }
        if !reserved::reserve(device.space.key(), address, size) {
            // Copies could not tell the variable from the memory that is already at this address.
            log::once("addresses", format_args!("{TAKEN}"));
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let memory = Memory::svm(&device.context, READ_WRITE, size, 1, address)
            .map_err(|error| of_error(&error))?;
        device.space.add_foreign(Arena { base: address, size, memory }, owner);
        known.push(address);
        Ok(())
    }

    /// Forgets all variables, because the module is unloaded.
    pub(crate) fn forget(&self, space: &Space) {
        for address in std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            space.forget_foreign(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_those_of_the_text() {
        let text = ".version 7.0\n.target sm_70\n.address_size 64\n.global .b8 b[4];\n.const .u32 a;\n.entry k() { ret; }\n\0";
        assert_eq!(variables(text.as_bytes()), ["a", "b"]);
        assert!(variables(b"\x7fELF machine code").is_empty());
        assert!(variables(b"no module").is_empty());
    }
}

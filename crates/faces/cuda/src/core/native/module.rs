//! Modules that CUDA's own driver loads as they are.

use penstock_cl_sys::CL_PROGRAM_BUILD_LOG;
use penstock_client::Program as PoolProgram;
use penstock_cuda_sys::driver::*;
use penstock_ptx::fatbin::{self, ImageKind};
use penstock_ptx::ir::{Entry, FunctionId, Global, Module as Described, Param};
use penstock_ptx::translate::Argument;
use penstock_wire::cuda;
use penstock_wire::describe::KernelDescription;
use rustc_hash::FxHashMap;

use crate::core::device::Device;
use crate::core::program::{BuiltKernel, BuiltPart, Program, Refusal};
use crate::edge::{of_error, of_status};

/// Arguments of a kernel that CUDA's own driver has loaded, in the order of [`cuda::ARG_PARAMS`]
/// and the constants after it.
const ARGUMENTS: [Argument; 3] = [Argument::Params, Argument::Shared, Argument::Heap];
const _: () = assert!(cuda::ARG_PARAMS == 0 && cuda::ARG_SHARED == 1 && cuda::ARG_HEAP == 2);

/// Loads a module. The driver reports what is in it.
pub(crate) fn load(device: &Device, bytes: &[u8]) -> Result<Program, Refusal> {
    let refused =
        |error: &penstock_client::Error, log: String| Refusal { code: of_error(error), log };
    let (program, statuses) = PoolProgram::with_binaries(&device.context, &[(&device.pool, bytes)])
        .map_err(|error| refused(&error, String::new()))?;
    if let Some(status) = statuses.first().filter(|status| status.is_error()) {
        return Err(Refusal { code: of_status(*status), log: String::new() });
    }
    let names = variables(bytes);
    let named = Some(names).filter(|names| !names.is_empty());
    if let Err(error) = program.load_module(&device.pool, named) {
        let log = program.build_info(&device.pool, CL_PROGRAM_BUILD_LOG).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
        return Err(refused(&error, log));
    }
    let made = program.kernels();
    let entries = made.iter().map(|kernel| entry(kernel)).collect();
    let globals = program.globals().into_iter().map(|global| Global {
        name: global.name,
        // Relative to address 0, so the offset is the address.
        offset: global.address,
        size: global.size,
        is_const: false,
        is_managed: false,
        opaque: None,
    });
    let module = Described::without_code(entries, globals.collect());
    let kernels = made.iter().map(|kernel| {
        let built = BuiltKernel {
            program: program.clone(),
            description: kernel.clone(),
            stops: false,
            arguments: ARGUMENTS.to_vec(),
            local_bytes: 0,
            dynamic_bytes_at: None,
        };
        (kernel.name.clone(), built)
    });
    let (kernels, refused) = (kernels.collect(), FxHashMap::default());
    let build = BuiltPart { arenas: Vec::new(), kernels, refused };
    Ok(Program::of_driver(module, build))
}

/// Returns an attribute of a kernel from the driver.
pub(crate) fn kernel_attribute(kernel: &KernelDescription, attribute: u32) -> Option<i32> {
    kernel.function.as_ref()?.attributes.get(attribute)
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
fn entry(kernel: &KernelDescription) -> Entry {
    let number = |attribute: u32| {
        let value = kernel_attribute(kernel, attribute);
        value.and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
    };
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let known = kernel.function.as_ref().and_then(|function| function.params.as_deref());
    let params = known.unwrap_or_default().iter();
    let params: Vec<Param> = params
        .map(|param| Param { offset: narrow(param.offset), size: narrow(param.size), align: 1 })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_those_of_the_text() {
        let text = ".version 7.0\n.target sm_70\n.address_size 64\n\
                    .global .b8 b[4];\n.const .u32 a;\n.entry k() { ret; }\n\0";
        assert_eq!(variables(text.as_bytes()), ["a", "b"]);
        assert!(variables(b"\x7fELF machine code").is_empty());
        assert!(variables(b"no module").is_empty());
    }
}

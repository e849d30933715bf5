//! Libraries: device code that belongs to no context and is loaded into each context that uses it.

use std::ffi::CString;
use std::sync::Arc;

use penstock_cuda_sys::driver::*;
use penstock_process::{Lock, SharedLock};
use penstock_ptx::ir::Entry;
use rustc_hash::FxHashMap;

use super::context::Context;
use super::module::{Function, Module};
use super::native;
use super::program::{Refusal, ptx_of};
use crate::edge::{CuResult, Object, forget, has_handle, new_number, publish};

pub(crate) struct Library {
    number: u64,
    /// The bytes that the program gave.
    bytes: Box<[u8]>,
    /// Its PTX. Empty if only CUDA's own driver can read the code.
    text: Box<str>,
    parsed: penstock_ptx::ir::Module,
    kernels: Lock<FxHashMap<String, Arc<Kernel>>>,
}

/// Behind a `CUkernel`: a function independent of contexts.
pub(crate) struct Kernel {
    number: u64,
    pub(crate) library: Arc<Library>,
    pub(crate) name: String,
    pub(crate) c_name: CString,
}

has_handle!(Library: CUlib_st, CUDA_ERROR_INVALID_HANDLE);

has_handle!(Kernel: CUkern_st, CUDA_ERROR_INVALID_HANDLE);

/// Modules that libraries have loaded into one context, by the library's number. Locked while a
/// module is loaded.
type ModulesOfContext = Lock<FxHashMap<u64, Arc<Module>>>;

/// Key: number of the context.
static MODULES: SharedLock<FxHashMap<u64, Arc<ModulesOfContext>>> =
    SharedLock::new(FxHashMap::with_hasher(rustc_hash::FxBuildHasher));

/// Returns the modules that libraries have loaded into a context.
fn modules_of(context: &Context) -> Arc<ModulesOfContext> {
    let known = MODULES.read();
    if let Some(modules) = known.get(&context.number()) {
        return modules.clone();
    }
    drop(known);
    let mut known = MODULES.write();
    known.entry(context.number()).or_default().clone()
}

/// Forgets all modules in a context. Their handles and memory end with the context.
pub(crate) fn forget_of(context: u64) {
    let gone = MODULES.write().remove(&context);
    drop(gone);
}

impl Library {
    /// Implements `cuLibraryLoadData`. Reports errors in the code that do not depend on the device.
    pub(crate) fn load(bytes: &[u8]) -> Result<Arc<Self>, Refusal> {
        let current = Context::peek();
        let parse = || {
            let text = ptx_of(bytes)?;
            let parsed = penstock_ptx::module::parse(&text).map_err(|error| Refusal {
                code: CUDA_ERROR_INVALID_PTX,
                log: error.to_string(),
            })?;
            Ok::<_, Refusal>((text, parsed))
        };
        let (text, parsed) = match (parse(), &current) {
            // CUDA's own driver may understand code that we do not.
            (Err(_), Some(context)) if context.device.is_native => {
                (Box::default(), native::module::load(&context.device, bytes)?.module)
            }
            (parsed, _) => parsed?,
        };
        let bytes = bytes.into();
        let library =
            Arc::new(Self { number: new_number(), bytes, text, parsed, kernels: Lock::default() });
        publish(&library);
        Ok(library)
    }

    pub(crate) fn unload(&self) -> CuResult {
        forget(self).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let kernels = std::mem::take(&mut *self.kernels.lock());
        for kernel in kernels.values() {
            _ = forget(&**kernel);
        }
        let contexts: Vec<_> = MODULES.read().values().cloned().collect();
        for modules in contexts {
            let mut modules = modules.lock();
            let module = modules.remove(&self.number);
            drop(modules);
            module.map_or(Ok(()), |module| module.unload())?;
        }
        Ok(())
    }

    /// Implements `cuLibraryGetModule`: returns the library's module in a context.
    pub(crate) fn module_in(&self, context: &Arc<Context>) -> CuResult<Arc<Module>> {
        let modules = modules_of(context);
        let mut modules = modules.lock();
        if let Some(module) = modules.get(&self.number) {
            return Ok(module.clone());
        }
        let module = if context.device.is_native {
            Module::load(context, &self.bytes)
        } else {
            Module::load_ptx(context, self.text.clone())
        };
        let module = module.map_err(|refusal| refusal.code)?;
        modules.insert(self.number, module.clone());
        Ok(module)
    }

    /// Implements `cuLibraryGetKernel`: returns the same handle each time.
    pub(crate) fn kernel(self: &Arc<Self>, name: &str) -> CuResult<Arc<Kernel>> {
        let mut kernels = self.kernels.lock();
        if let Some(kernel) = kernels.get(name) {
            return Ok(kernel.clone());
        }
        if !self.names().any(|known| known == name) {
            return Err(CUDA_ERROR_NOT_FOUND);
        }
        let c_name = CString::new(name).unwrap_or_default();
        let kernel =
            Kernel { number: new_number(), library: self.clone(), name: name.to_owned(), c_name };
        let kernel = Arc::new(kernel);
        publish(&kernel);
        kernels.insert(name.to_owned(), kernel.clone());
        Ok(kernel)
    }

    /// Returns the description of a kernel, if the code has it.
    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        self.parsed.entries().iter().find(|entry| entry.name == name)
    }

    /// Returns whether it has a managed variable of this name.
    pub(crate) fn has_managed(&self, name: &str) -> bool {
        self.parsed.globals().iter().any(|global| global.is_managed && global.name == name)
    }

    /// Returns the names of its kernels.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.parsed.entries().iter().map(|entry| entry.name.as_str())
    }
}

impl Kernel {
    /// Implements `cuKernelGetFunction`: returns the function in a context.
    pub(crate) fn function_in(&self, context: &Arc<Context>) -> CuResult<Arc<Function>> {
        self.library.module_in(context)?.function(&self.name)
    }
}

/// Returns the function of a handle, which may be that of a kernel: "hfunc can be ... a CUkernel
/// cast to CUfunction".
#[inline]
pub(crate) fn function(raw: CUfunction) -> CuResult<Arc<Function>> {
    match Function::borrow(raw) {
        Ok(function) => Ok(function),
        Err(_) => Kernel::of_number(raw.addr() as u64)?.function_in(&Context::current()?),
    }
}

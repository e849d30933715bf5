//! What the program's binaries registered: fat binaries, and the kernels and variables in them.
//!
//! Registering happens before `main` and never touches the driver. A fat binary becomes a module of a context when one of its kernels or
//! variables is first used there.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError, RwLock, TryLockError};

use penstock_cuda_sys::driver::{CUdeviceptr, CUfunction, CUmodule};
use penstock_cuda_sys::runtime_codes as code;
use rustc_hash::FxHashMap;

use super::context::Current;
use super::exit;
use super::image::{self, Image};
use crate::driver::driver_if_used;
use crate::edge::{Found, RtError, RtResult, THREAD};

/// A fat binary of the program.
#[derive(Debug)]
pub(crate) struct Binary {
    /// None if what was registered is no fat binary.
    image: Option<Image>,
    /// Its module in each context, or why it cannot be loaded there: few contexts, so a list.
    modules: Mutex<Vec<(usize, RtResult<usize>)>>,
}

/// A kernel of the program. Its address is the kernel's handle, so it stays to the end of the process.
#[derive(Debug)]
pub(crate) struct Kernel {
    binary: &'static Binary,
    name: CString,
    /// Its function in each context.
    functions: RwLock<Vec<(usize, usize)>>,
}

/// A device variable of the program.
#[derive(Debug)]
pub(crate) struct Variable {
    binary: &'static Binary,
    name: CString,
    /// Address and size in each context.
    places: RwLock<Vec<(usize, CUdeviceptr, usize)>>,
}

#[derive(Default)]
struct Registry {
    /// By the address of the function that the compiler made for the host.
    kernels: FxHashMap<usize, &'static Kernel>,
    /// Handles that the program was given.
    handles: FxHashMap<usize, &'static Kernel>,
    /// By the address of the variable that the compiler made for the host.
    variables: FxHashMap<usize, &'static Variable>,
    binaries: Vec<&'static Binary>,
    /// Functions of the driver that the program was given, and may pass where a kernel is wanted.
    functions: FxHashMap<usize, ()>,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

fn read<T>(work: impl FnOnce(&Registry) -> T) -> T {
    work(&REGISTRY.read().unwrap_or_else(PoisonError::into_inner))
}

fn change<T>(work: impl FnOnce(&mut Registry) -> T) -> T {
    work(&mut REGISTRY.write().unwrap_or_else(PoisonError::into_inner))
}

/// Registers a fat binary (none if what the program gave is none: its kernels then cannot be launched).
pub(crate) fn add_binary(image: Option<Image>) -> &'static Binary {
    exit::note_home();
    // Few, and until the process ends: a plug-in that is loaded again and again costs these bytes each time.
    let binary: &'static Binary = Box::leak(Box::new(Binary { image, modules: Mutex::default() }));
    change(|registry| registry.binaries.push(binary));
    binary
}

/// The binary of a handle that [`add_binary`] made.
pub(crate) fn binary(handle: *const c_void) -> Option<&'static Binary> {
    read(|registry| {
        registry.binaries.iter().copied().find(|binary| std::ptr::addr_eq(*binary, handle))
    })
}

/// Forgets a binary and all in it, as the program's library with it is unloaded, or the process ends. This runs at the end of forked
/// children, too, and while other threads still use what they will not use for long: then nothing is waited for.
pub(crate) fn remove(handle: *const c_void) {
    if exit::ending() || exit::is_forked() {
        return;
    }
    let Some(binary) = binary(handle) else { return };
    change(|registry| {
        registry.binaries.retain(|other| !std::ptr::eq(*other, binary));
        registry.kernels.retain(|_, kernel| !std::ptr::eq(kernel.binary, binary));
        registry.handles.retain(|_, kernel| !std::ptr::eq(kernel.binary, binary));
        registry.variables.retain(|_, variable| !std::ptr::eq(variable.binary, binary));
    });
    LOSSES.fetch_add(1, Ordering::AcqRel);
    // Whoever loads one of its modules now keeps it: that may take long, and the process may be about to end.
    let modules = match binary.modules.try_lock() {
        Ok(mut modules) => std::mem::take(&mut *modules),
        Err(TryLockError::Poisoned(modules)) => std::mem::take(&mut *modules.into_inner()),
        Err(TryLockError::WouldBlock) => return,
    };
    let Some(driver) = driver_if_used() else { return };
    for (_, module) in modules {
        let Ok(module) = module else { continue };
        // SAFETY: a module that this library loaded, and unloads once. If its context is gone, so is the module, and the driver says so.
        _ = unsafe { driver.cuModuleUnload(std::ptr::with_exposed_provenance_mut(module)) };
    }
}

/// Registers a kernel under the address of its function for the host.
pub(crate) fn add_kernel(binary: &'static Binary, host: *const c_void, name: &CStr) {
    let kernel: &'static Kernel =
        Box::leak(Box::new(Kernel { binary, name: name.to_owned(), functions: RwLock::default() }));
    change(|registry| {
        registry.kernels.insert(host.addr(), kernel);
        registry.handles.insert(std::ptr::from_ref(kernel).addr(), kernel);
    });
}

/// Registers a variable under its address for the host.
pub(crate) fn add_variable(binary: &'static Binary, host: *const c_void, name: &CStr) {
    let variable: &'static Variable =
        Box::leak(Box::new(Variable { binary, name: name.to_owned(), places: RwLock::default() }));
    change(|registry| registry.variables.insert(host.addr(), variable));
}

/// The program has been given this function of the driver.
pub(crate) fn add_function(function: CUfunction) {
    change(|registry| registry.functions.insert(function.expose_provenance(), ()));
}

/// The kernel of a function for the host, or of a handle.
///
/// # Errors
/// None is registered under it.
pub(crate) fn kernel(host: *const c_void) -> RtResult<&'static Kernel> {
    read(|registry| {
        registry.kernels.get(&host.addr()).or_else(|| registry.handles.get(&host.addr())).copied()
    })
    .ok_or(RtError(code::INVALID_DEVICE_FUNCTION))
}

/// How often something was lost: a binary, or a context. What threads remember from before does not count.
static LOSSES: AtomicU64 = AtomicU64::new(0);

/// The driver's function for what a program passes as a kernel.
///
/// # Errors
/// It is no kernel, or its module cannot be loaded.
#[inline]
pub(crate) fn function(current: Current, host: *const c_void) -> RtResult<CUfunction> {
    let losses = LOSSES.load(Ordering::Acquire);
    let remembered = THREAD.with(|thread| thread.place_of(host.addr()).get());
    if let Some(found) = remembered
        && (found.host, found.context, found.losses)
            == (host.addr(), current.context.addr(), losses)
    {
        return Ok(std::ptr::with_exposed_provenance_mut(found.function));
    }
    let function = look_up(current, host)?;
    let (host, context) = (host.addr(), current.context.addr());
    let found = Found { host, context, losses, function: function.expose_provenance() };
    THREAD.with(|thread| thread.place_of(host).set(Some(found)));
    Ok(function)
}

#[cold]
fn look_up(current: Current, host: *const c_void) -> RtResult<CUfunction> {
    match kernel(host) {
        Ok(kernel) => kernel.function(current),
        Err(error) => {
            let known = read(|registry| registry.functions.contains_key(&host.addr()));
            if known { Ok(host.cast_mut().cast()) } else { Err(error) }
        }
    }
}

/// What the program passes as the kernel of a function of the driver; the function itself where it has no other name for it.
pub(crate) fn host_of(current: Current, function: CUfunction) -> *const c_void {
    let wanted = (current.context.addr(), function.addr());
    let is_it = |kernel: &Kernel| {
        let functions = kernel.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.contains(&wanted)
    };
    let found = read(|registry| {
        registry.kernels.iter().find(|(_, kernel)| is_it(kernel)).map(|(host, _)| *host)
    });
    found.map_or(function.cast_const().cast(), std::ptr::without_provenance)
}

/// The variable of an address for the host.
///
/// # Errors
/// None is registered under it.
pub(crate) fn variable(host: *const c_void) -> RtResult<&'static Variable> {
    read(|registry| registry.variables.get(&host.addr()).copied())
        .ok_or(RtError(code::INVALID_SYMBOL))
}

/// A context is gone, and with it all that was loaded into it.
pub(crate) fn forget_context(context: usize) {
    read(|registry| {
        for binary in &registry.binaries {
            binary
                .modules
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|(of, _)| *of != context);
        }
        for kernel in registry.kernels.values() {
            kernel
                .functions
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|(of, _)| *of != context);
        }
        for variable in registry.variables.values() {
            variable
                .places
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|(of, ..)| *of != context);
        }
    });
    LOSSES.fetch_add(1, Ordering::AcqRel);
}

impl Binary {
    fn module(&self, current: Current) -> RtResult<CUmodule> {
        let Some(image) = self.image else { return Err(RtError(code::INVALID_KERNEL_IMAGE)) };
        // Held while the module is loaded: two threads must not load it twice.
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let context = current.context.addr();
        if let Some((_, module)) = modules.iter().find(|(of, _)| *of == context) {
            return module.map(std::ptr::with_exposed_provenance_mut);
        }
        let loaded = image.load(current);
        // The binary's handler for the end of the process is registered by now, so this one will come before it.
        exit::notice();
        // What is wrong with the program stays wrong; memory may be there the next time.
        if loaded.is_ok() || loaded.is_err_and(image::is_of_the_program) {
            modules.push((context, loaded.map(|module| module.expose_provenance())));
        }
        loaded
    }
}

impl Kernel {
    /// Its name on the device.
    pub(crate) fn name(&self) -> *const c_char {
        self.name.as_ptr()
    }

    /// Its handle.
    pub(crate) fn handle(&'static self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Its function in the current context.
    #[inline]
    fn function(&self, current: Current) -> RtResult<CUfunction> {
        let context = current.context.addr();
        let known = {
            let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
            functions.iter().find(|(of, _)| *of == context).map(|(_, function)| *function)
        };
        match known {
            Some(function) => Ok(std::ptr::with_exposed_provenance_mut(function)),
            None => self.find_function(current),
        }
    }

    #[cold]
    fn find_function(&self, current: Current) -> RtResult<CUfunction> {
        let module = self.binary.module(current)?;
        let mut function: CUfunction = std::ptr::null_mut();
        // SAFETY: a place for the answer, a module of this context, a string of C.
        unsafe {
            current.driver.cuModuleGetFunction(&raw mut function, module, self.name.as_ptr())
        }
        .map_err(|error| match error.0 {
            code::SYMBOL_NOT_FOUND => RtError(code::INVALID_DEVICE_FUNCTION),
            _ => error,
        })?;
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        functions.push((current.context.addr(), function.expose_provenance()));
        Ok(function)
    }
}

impl Variable {
    /// Its address and size (in bytes) in the current context.
    pub(crate) fn place(&self, current: Current) -> RtResult<(CUdeviceptr, usize)> {
        let context = current.context.addr();
        let known = {
            let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
            places
                .iter()
                .find(|(of, ..)| *of == context)
                .map(|(_, pointer, bytes)| (*pointer, *bytes))
        };
        if let Some(place) = known {
            return Ok(place);
        }
        let module = self.binary.module(current)?;
        let (mut pointer, mut bytes) = (0, 0);
        // SAFETY: places for the answers, a module of this context, a string of C.
        unsafe {
            current.driver.cuModuleGetGlobal(
                &raw mut pointer,
                &raw mut bytes,
                module,
                self.name.as_ptr(),
            )
        }
        .map_err(|error| match error.0 {
            code::SYMBOL_NOT_FOUND => RtError(code::INVALID_SYMBOL),
            _ => error,
        })?;
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        places.push((context, pointer, bytes));
        Ok((pointer, bytes))
    }
}

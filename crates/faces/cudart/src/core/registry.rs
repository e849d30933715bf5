//! What the program's binaries registered: fat binaries, and the kernels and variables in them.
//!
//! Registration happens before `main` and never calls the driver. A fat binary is loaded into a
//! context as a module when the program first uses one of its kernels or variables there.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_cuda_sys::driver::{CUdeviceptr, CUfunction, CUmodule};
use penstock_cuda_sys::runtime_codes as code;
use penstock_process::{Lock, SharedLock};
use rustc_hash::FxHashMap;

use super::context::Current;
use super::exit;
use super::image::{self, Image};
use crate::driver::driver_if_used;
use crate::edge::{Found, RtError, RtResult, THREAD};

/// A fat binary of the program.
#[derive(Debug)]
pub(crate) struct Binary {
    /// `None` if the program registered something other than a fat binary.
    image: Option<Image>,
    /// The module in each context, or the reason why it cannot be loaded there. A list suffices
    /// because there are few contexts.
    modules: Lock<Vec<(usize, RtResult<usize>)>>,
}

/// A kernel of the program. Its address is the kernel's handle, so it is never freed.
#[derive(Debug)]
pub(crate) struct Kernel {
    binary: &'static Binary,
    name: CString,
    /// Pairs of a context and the function there.
    functions: SharedLock<Vec<(usize, usize)>>,
}

/// A device variable of the program.
#[derive(Debug)]
pub(crate) struct Variable {
    binary: &'static Binary,
    name: CString,
    instances: SharedLock<Vec<VariableInstance>>,
    /// Where the program keeps the variable's address, if the variable is managed.
    managed: Option<ManagedPlace>,
}

/// A pointer of the program to a managed variable. The compiler made it, and the program follows it
/// after [`Binary::show_managed`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ManagedPlace {
    /// Address of the pointer.
    pub(crate) pointer: usize,
    /// Size of the variable in bytes.
    pub(crate) bytes: usize,
}

/// A device variable in one context.
#[derive(Clone, Copy, Debug)]
struct VariableInstance {
    /// Address of the context.
    context: usize,
    pointer: CUdeviceptr,
    /// Size of the variable in bytes.
    bytes: usize,
}

#[derive(Default)]
struct Registry {
    /// By the address of the host function that the compiler made.
    kernels: FxHashMap<usize, &'static Kernel>,
    /// Kernels by the handles that the program was given.
    handles: FxHashMap<usize, &'static Kernel>,
    /// By the address of the host variable that the compiler made.
    variables: FxHashMap<usize, &'static Variable>,
    binaries: Vec<&'static Binary>,
    /// Functions of the driver that the program was given and may pass as kernels.
    functions: FxHashMap<usize, ()>,
}

static REGISTRY: LazyLock<SharedLock<Registry>> = LazyLock::new(SharedLock::default);

fn read<T>(work: impl FnOnce(&Registry) -> T) -> T {
    work(&REGISTRY.read())
}

fn change<T>(work: impl FnOnce(&mut Registry) -> T) -> T {
    work(&mut REGISTRY.write())
}

/// Registers a fat binary. If `image` is `None`, its kernels cannot be launched.
pub(crate) fn add_binary(image: Option<Image>) -> &'static Binary {
    exit::note_home();
    // Never freed, because binaries are few. Each load of the same plug-in costs these bytes again.
    let binary: &'static Binary = Box::leak(Box::new(Binary { image, modules: Lock::default() }));
    change(|registry| registry.binaries.push(binary));
    binary
}

/// Returns the binary of a handle that [`add_binary`] made.
pub(crate) fn binary(handle: *const c_void) -> Option<&'static Binary> {
    read(|registry| {
        registry.binaries.iter().copied().find(|binary| std::ptr::addr_eq(*binary, handle))
    })
}

/// Forgets a binary and everything in it, because the program unloads the library that holds it, or
/// the process ends. This also runs at the end of forked children, and while other threads still
/// use the binary, so it does not wait for a module that is being loaded.
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
    // A thread that is loading one of the modules now keeps it. Loading may take long, and the
    // process may be about to end.
    let taken = binary.modules.try_lock().map(|mut modules| std::mem::take(&mut *modules));
    let Some(modules) = taken else { return };
    let Some(driver) = driver_if_used() else { return };
    for (_, module) in modules {
        let Ok(module) = module else { continue };
        // SAFETY: this library loaded the module and unloads it once. If its context is gone, so is
        // the module, and the driver returns an error.
        _ = unsafe { driver.cuModuleUnload(std::ptr::with_exposed_provenance_mut(module)) };
    }
}

/// Registers a kernel under the address of its host function.
pub(crate) fn add_kernel(binary: &'static Binary, host: *const c_void, name: &CStr) {
    let kernel: &'static Kernel = Box::leak(Box::new(Kernel {
        binary,
        name: name.to_owned(),
        functions: SharedLock::default(),
    }));
    change(|registry| {
        registry.kernels.insert(host.addr(), kernel);
        registry.handles.insert(std::ptr::from_ref(kernel).addr(), kernel);
    });
}

/// Registers a variable under the address of its host variable.
pub(crate) fn add_variable(
    binary: &'static Binary,
    host: *const c_void,
    name: &CStr,
    managed: Option<ManagedPlace>,
) {
    let variable: &'static Variable = Box::leak(Box::new(Variable {
        binary,
        name: name.to_owned(),
        instances: SharedLock::default(),
        managed,
    }));
    change(|registry| registry.variables.insert(host.addr(), variable));
}

/// Records that the program was given this function of the driver.
pub(crate) fn add_function(function: CUfunction) {
    change(|registry| registry.functions.insert(function.expose_provenance(), ()));
}

/// Returns the kernel that is registered under a host function or a handle.
///
/// # Errors
/// No kernel is registered under `host`.
pub(crate) fn kernel(host: *const c_void) -> RtResult<&'static Kernel> {
    read(|registry| {
        registry.kernels.get(&host.addr()).or_else(|| registry.handles.get(&host.addr())).copied()
    })
    .ok_or(RtError(code::INVALID_DEVICE_FUNCTION))
}

/// Number of removed binaries and contexts. What a thread remembers from before one is invalid.
static LOSSES: AtomicU64 = AtomicU64::new(0);

/// Returns the driver's function for the pointer that a program passes as a kernel.
///
/// # Errors
/// The pointer is no kernel, or its module cannot be loaded.
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

/// Returns the pointer by which the program knows a function of the driver as a kernel, or the
/// function itself if there is none.
pub(crate) fn host_of(current: Current, function: CUfunction) -> *const c_void {
    let wanted = (current.context.addr(), function.addr());
    let is_it = |kernel: &Kernel| {
        let functions = kernel.functions.read();
        functions.contains(&wanted)
    };
    let found = read(|registry| {
        registry.kernels.iter().find(|(_, kernel)| is_it(kernel)).map(|(host, _)| *host)
    });
    found.map_or(function.cast_const().cast(), std::ptr::without_provenance)
}

/// Returns the variable that is registered under a host address.
///
/// # Errors
/// No variable is registered under `host`.
pub(crate) fn variable(host: *const c_void) -> RtResult<&'static Variable> {
    read(|registry| registry.variables.get(&host.addr()).copied())
        .ok_or(RtError(code::INVALID_SYMBOL))
}

/// Forgets everything that was loaded into a context that is gone.
pub(crate) fn forget_context(context: usize) {
    read(|registry| {
        for binary in &registry.binaries {
            binary.modules.lock().retain(|(of, _)| *of != context);
        }
        for kernel in registry.kernels.values() {
            kernel.functions.write().retain(|(of, _)| *of != context);
        }
        for variable in registry.variables.values() {
            variable.instances.write().retain(|instance| instance.context != context);
        }
    });
    LOSSES.fetch_add(1, Ordering::AcqRel);
}

impl Binary {
    /// Makes the program's pointers to the managed variables point to them, in the current context.
    /// If a variable has no memory, its pointer leads to memory that only the host sees, so that
    /// the program lives until a call tells it what is wrong.
    ///
    /// # Errors
    /// The reason why a variable has no memory.
    pub(crate) fn show_managed(&'static self, current: RtResult<Current>) -> RtResult {
        let variables: Vec<_> = read(|registry| {
            let all = registry.variables.values().copied();
            all.filter(|variable| std::ptr::eq(variable.binary, self)).collect()
        });
        let mut result = Ok(());
        for variable in variables {
            let Some(ManagedPlace { pointer, bytes }) = variable.managed else { continue };
            let place: *mut *mut u8 = std::ptr::with_exposed_provenance_mut(pointer);
            let shown = current.and_then(|current| variable.place(current));
            let address = shown.map(|(address, _)| usize::try_from(address).unwrap_or(0));
            match address {
                Ok(address) => {
                    // SAFETY: the compiler made the pointer, and only this function writes it.
                    unsafe { place.write(std::ptr::with_exposed_provenance_mut(address)) };
                    // The program names the variable by its content's address from now on.
                    change(|registry| registry.variables.insert(address, variable));
                }
                Err(error) => {
                    result = Err(error);
                    // SAFETY: as above.
                    unsafe {
                        if place.read().is_null() {
                            let room = vec![0_u64; bytes.div_ceil(8).max(1)].leak();
                            place.write(room.as_mut_ptr().cast());
                        }
                    }
                }
            }
        }
        result
    }

    fn module(&self, current: Current) -> RtResult<CUmodule> {
        let Some(image) = self.image else { return Err(RtError(code::INVALID_KERNEL_IMAGE)) };
        // The lock is held while the module is loaded, so that two threads do not load it twice.
        let mut modules = self.modules.lock();
        let context = current.context.addr();
        if let Some((_, module)) = modules.iter().find(|(of, _)| *of == context) {
            return module.map(std::ptr::with_exposed_provenance_mut);
        }
        let loaded = image.load(current);
        // The exit handler of the binary is already registered, so this one runs first.
        exit::notice();
        // Errors of the program's code are permanent. Others, such as a lack of memory, may end.
        if loaded.is_ok() || loaded.is_err_and(image::is_of_the_program) {
            modules.push((context, loaded.map(|module| module.expose_provenance())));
        }
        loaded
    }
}

impl Kernel {
    /// Returns the kernel's name on the device.
    pub(crate) fn name(&self) -> *const c_char {
        self.name.as_ptr()
    }

    pub(crate) fn handle(&'static self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the kernel's function in the current context.
    #[inline]
    fn function(&self, current: Current) -> RtResult<CUfunction> {
        let context = current.context.addr();
        let known = {
            let functions = self.functions.read();
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
        // SAFETY: the pointer is valid for a write of the answer, the module belongs to this
        // context, and the name is a C string.
        unsafe {
            current.driver.cuModuleGetFunction(&raw mut function, module, self.name.as_ptr())
        }
        .map_err(|error| match error.0 {
            code::SYMBOL_NOT_FOUND => RtError(code::INVALID_DEVICE_FUNCTION),
            _ => error,
        })?;
        let mut functions = self.functions.write();
        functions.push((current.context.addr(), function.expose_provenance()));
        Ok(function)
    }
}

impl Variable {
    /// Returns the variable's address and size in bytes in the current context.
    pub(crate) fn place(&self, current: Current) -> RtResult<(CUdeviceptr, usize)> {
        let context = current.context.addr();
        let known = self.instances.read().iter().find(|known| known.context == context).copied();
        if let Some(VariableInstance { pointer, bytes, .. }) = known {
            return Ok((pointer, bytes));
        }
        let module = self.binary.module(current)?;
        let (mut pointer, mut bytes) = (0, 0);
        // SAFETY: the pointers are valid for writes of the answers, the module belongs to this
        // context, and the name is a C string.
        unsafe {
            current.driver.cuModuleGetGlobal_v2(
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
        self.instances.write().push(VariableInstance { context, pointer, bytes });
        Ok((pointer, bytes))
    }
}

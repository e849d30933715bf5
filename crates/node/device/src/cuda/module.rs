use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use penstock_cuda_sys::driver::{
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_INFO_LOG_BUFFER,
    CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CUfunc_st, CUfunction, CUmod_st, CUmodule,
};
use penstock_process::Lock;
use penstock_wire::cuda::{Global, Param};
use penstock_wire::status::Status;
use penstock_wire::{cuda, limits};

use super::address::Address;
use super::device::Device;
use super::driver::{c_name, check, text};
use super::names;
use super::reaper::{self, Reaper, Remains};
use super::shared::SharedLimits;

/// Size of each log of the just-in-time compiler. Longer logs are cut.
const LOG_BYTES: usize = 64 << 10;
/// Most functions that are listed of a module: 8 MiB of addresses, more than libraries have.
const FUNCTIONS_MAX: u32 = 1 << 20;
/// Dynamic shared memory that any launch may use without a call that allows it first.
const SHARED_UNASKED: u32 = 48 << 10;

/// A module in a device's context.
pub(super) struct Module {
    device: &'static Device,
    raw: Address<CUmod_st>,
    /// Names found in its image.
    seen: names::Names,
    shared: SharedLimits,
}

pub(super) struct Function {
    raw: Address<CUfunc_st>,
    module: Arc<Module>,
    /// Dynamic shared memory that a launch may have without asking again.
    shared_max: AtomicU32,
    /// The parameters, if the driver reports them.
    params: Option<Vec<Param>>,
}

impl Module {
    /// Loads an image. Returns the module or the error, and the compiler's log.
    pub(super) fn load(device: &'static Device, image: &[u8]) -> (Result<Self, Status>, String) {
        if let Err(status) = device.enter() {
            return (Err(status), String::new());
        }
        // Text may lack its NUL, and a cubin must be aligned to eight bytes.
        let mut words = vec![0_u64; image.len() / 8 + 1];
        for (word, bytes) in words.iter_mut().zip(image.chunks(8)) {
            let mut eight = [0; 8];
            eight.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            *word = u64::from_ne_bytes(eight);
        }
        let (mut info, mut error) = (vec![0_u8; LOG_BYTES], vec![0_u8; LOG_BYTES]);
        let mut options = [
            CU_JIT_INFO_LOG_BUFFER,
            CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            CU_JIT_ERROR_LOG_BUFFER,
            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        // The driver is told one byte less, so that the last byte stays a NUL.
        let room = std::ptr::without_provenance_mut::<c_void>(LOG_BYTES - 1);
        let mut raw: CUmodule = std::ptr::null_mut();
        // The module's variables take memory of the device.
        let loaded = reaper::with_memory(device, || {
            // The driver replaces both sizes by the numbers of bytes that it wrote.
            let mut values =
                [info.as_mut_ptr().cast::<c_void>(), room, error.as_mut_ptr().cast(), room];
            let number = u32::try_from(options.len()).unwrap_or(0);
            // SAFETY: the image ends with a NUL, each option has its value, and both logs have more
            // bytes than the driver is told. The driver may read past an image that lies about its
            // size; a crash ends this process, which only serves the client that sent the image.
            check(unsafe {
                (device.cuda().cuModuleLoadDataEx)(
                    &mut raw,
                    words.as_ptr().cast(),
                    number,
                    options.as_mut_ptr(),
                    values.as_mut_ptr(),
                )
            })
        });
        let log = [text(&error), text(&info)].join("\n").trim().to_owned();
        let seen = names::names(image);
        (
            loaded.map(|()| Self {
                device,
                raw: Address::new(raw),
                seen,
                shared: SharedLimits::default(),
            }),
            log,
        )
    }

    pub(super) fn device(&self) -> &'static Device {
        self.device
    }

    /// Returns the names of its kernels from the driver, or those in the image that an older driver
    /// knows.
    pub(super) fn kernel_names(&self) -> Vec<String> {
        self.listed().unwrap_or_else(|| {
            let seen = self.seen.kernels.iter();
            seen.filter(|name| self.find(name).is_ok()).cloned().collect()
        })
    }

    fn listed(&self) -> Option<Vec<String>> {
        let cuda = self.device.cuda();
        let (count, list, name) =
            (cuda.cuModuleGetFunctionCount?, cuda.cuModuleEnumerateFunctions?, cuda.cuFuncGetName?);
        self.device.enter().ok()?;
        let mut number = 0;
        // SAFETY: the module lives; `number` outlives the call.
        check(unsafe { count(&mut number, self.raw.get()) }).ok()?;
        let number = number.min(FUNCTIONS_MAX);
        let mut functions: Vec<CUfunction> = vec![std::ptr::null_mut(); number as usize];
        // SAFETY: the list has `number` entries.
        check(unsafe { list(functions.as_mut_ptr(), number, self.raw.get()) }).ok()?;
        let text = |function| {
            let mut start = std::ptr::null();
            // SAFETY: the function belongs to the module, which lives.
            check(unsafe { name(&mut start, function) }).ok()?;
            if start.is_null() {
                return None;
            }
            // SAFETY: the driver's text ends with a NUL and lives as long as the module.
            Some(unsafe { CStr::from_ptr(start) }.to_str().ok()?.to_owned())
        };
        functions.into_iter().map(text).collect()
    }

    fn find(&self, name: &str) -> Result<CUfunction, Status> {
        self.device.enter()?;
        let name = c_name(name)?;
        let mut function: CUfunction = std::ptr::null_mut();
        // SAFETY: the module lives; the name ends with a NUL; `function` outlives the call.
        check(unsafe {
            (self.device.cuda().cuModuleGetFunction)(&mut function, self.raw.get(), name.as_ptr())
        })?;
        Ok(function)
    }

    /// Returns the module's variables of these names, or all that were found in the image.
    pub(super) fn globals(self: &Arc<Self>, asked: Option<&[String]>) -> Vec<Global> {
        let names = asked.unwrap_or(&self.seen.globals);
        let globals: Vec<Global> = names.iter().filter_map(|name| self.global(name).ok()).collect();
        let mut variables = VARIABLES.lock();
        variables.retain(|_, (_, module)| module.strong_count() > 0);
        for global in &globals {
            let size = usize::try_from(global.size).unwrap_or(0);
            variables.insert(global.address, (size, Arc::downgrade(self)));
        }
        globals
    }

    fn global(&self, name: &str) -> Result<Global, Status> {
        self.device.enter()?;
        let text = c_name(name)?;
        let (mut address, mut size) = (0, 0);
        // SAFETY: the module lives; the name ends with a NUL; both locations outlive the call.
        check(unsafe {
            (self.device.cuda().cuModuleGetGlobal)(
                &mut address,
                &mut size,
                self.raw.get(),
                text.as_ptr(),
            )
        })?;
        Ok(Global { name: name.to_owned(), address, size: size as u64 })
    }
}

/// All reported variables of all modules of this process, by address.
static VARIABLES: Lock<BTreeMap<u64, (usize, Weak<Module>)>> = Lock::new(BTreeMap::new());

/// Returns the module with a variable that contains these bytes.
pub(super) fn with_variable(address: u64, bytes: usize) -> Option<Arc<Module>> {
    let variables = VARIABLES.lock();
    let (start, (size, module)) = variables.range(..=address).next_back()?;
    let offset = usize::try_from(address - start).ok()?;
    let lies_within = offset.checked_add(bytes).is_some_and(|end| end <= *size);
    if lies_within { module.upgrade() } else { None }
}

impl Drop for Module {
    fn drop(&mut self) {
        Reaper::take(self.device, Remains::Module(self.raw));
    }
}

impl Function {
    pub(super) fn new(module: &Arc<Module>, name: &str) -> Result<Self, Status> {
        let raw = Address::new(module.find(name)?);
        let mut function = Self {
            raw,
            module: module.clone(),
            shared_max: AtomicU32::new(SHARED_UNASKED),
            params: None,
        };
        let unasked = function.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
        if let Some(bytes) = unasked.ok().and_then(|bytes| u32::try_from(bytes).ok()) {
            function.shared_max = AtomicU32::new(bytes);
        }
        function.params = function.ask_params();
        Ok(function)
    }

    pub(super) fn raw(&self) -> CUfunction {
        self.raw.get()
    }

    pub(super) fn module(&self) -> &Arc<Module> {
        &self.module
    }

    /// Returns the parameters, if the driver reports them.
    pub(super) fn params(&self) -> Option<&[Param]> {
        self.params.as_deref()
    }

    /// Returns the size of the packed parameters, if the driver reports it.
    pub(super) fn params_bytes(&self) -> Option<usize> {
        let end = |param: &Param| usize::try_from(param.offset.saturating_add(param.size)).ok();
        self.params()?.iter().map(end).max().unwrap_or(Some(0))
    }

    fn ask_params(&self) -> Option<Vec<Param>> {
        let ask = self.module.device.cuda().cuFuncGetParamInfo?;
        self.module.device.enter().ok()?;
        let mut params = Vec::new();
        for index in 0..limits::ARG_INDEX_MAX as usize {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function lives with its module; both locations outlive the call.
            match check(unsafe { ask(self.raw(), index, &mut offset, &mut size) }) {
                Ok(()) => params.push(Param { offset: offset as u64, size: size as u64 }),
                // "CUDA_ERROR_INVALID_VALUE if the parameter index is greater than or equal to the
                // number of parameters". Other errors do not tell the number.
                Err(status) if cuda::code(status) == Some(1) => return Some(params),
                Err(_) => return None,
            }
        }
        Some(params)
    }

    /// Returns the value of `cuFuncGetAttribute`.
    pub(super) fn attribute(&self, attribute: u32) -> Result<i32, Status> {
        self.module.device.enter()?;
        let mut value = 0;
        // SAFETY: the function lives with its module; `value` outlives the call.
        check(unsafe {
            (self.module.device.cuda().cuFuncGetAttribute)(&mut value, attribute, self.raw())
        })?;
        Ok(value)
    }

    /// Returns the number of blocks of `threads` threads and `shared` bytes of dynamic shared
    /// memory that an otherwise idle GPU runs at the same time.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if the driver cannot tell; the driver's errors.
    pub(super) fn resident_blocks(&self, threads: u32, shared: u32) -> Result<u64, Status> {
        let device = self.module.device;
        let ask = device
            .cuda()
            .cuOccupancyMaxActiveBlocksPerMultiprocessor
            .ok_or(Status::INVALID_VALUE)?;
        device.enter()?;
        // Without this, the driver would report 0 for sizes that were never allowed.
        self.allow_shared(shared)?;
        let threads = i32::try_from(threads).map_err(|_| Status::INVALID_VALUE)?;
        let mut blocks = 0;
        // SAFETY: the function lives with its module; `blocks` outlives the call.
        check(unsafe { ask(&mut blocks, self.raw(), threads, shared as usize) })?;
        let units = device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let narrow = |number: i32| u64::try_from(number).unwrap_or(0);
        Ok(narrow(blocks) * narrow(units))
    }

    /// Allows launches this much dynamic shared memory, if needed. The device's context is current.
    pub(super) fn allow_shared(&self, bytes: u32) -> Result<(), Status> {
        let known = self.shared_max.load(Ordering::Acquire);
        if known >= bytes {
            return Ok(());
        }
        let value = i32::try_from(bytes).map_err(|_| Status::INVALID_VALUE)?;
        let set = || {
            let set = self.module.device.cuda().cuFuncSetAttribute;
            // SAFETY: the function lives with its module.
            check(unsafe {
                set(self.raw(), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, value)
            })
        };
        let now = self.module.shared.allow(self.raw().addr(), bytes, known, set)?;
        self.shared_max.fetch_max(now, Ordering::AcqRel);
        Ok(())
    }
}

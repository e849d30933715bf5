//! Programs: a module image for the context's device, loaded by `clBuildProgram`.

use std::ffi::{CStr, c_char, c_uchar, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_cl_sys::{
    _cl_program, CL_BUILD_ERROR, CL_BUILD_NONE, CL_BUILD_SUCCESS, CL_INVALID_PROGRAM_EXECUTABLE,
    CL_PROGRAM_BINARIES, CL_PROGRAM_BINARY_SIZES, CL_PROGRAM_BINARY_TYPE,
    CL_PROGRAM_BINARY_TYPE_EXECUTABLE, CL_PROGRAM_BINARY_TYPE_NONE,
    CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE, CL_PROGRAM_BUILD_LOG, CL_PROGRAM_BUILD_OPTIONS,
    CL_PROGRAM_BUILD_STATUS, CL_PROGRAM_DEVICES, CL_PROGRAM_KERNEL_NAMES, CL_PROGRAM_NUM_DEVICES,
    CL_PROGRAM_NUM_KERNELS, cl_context, cl_device_id, cl_int, cl_program, cl_program_build_info,
    cl_program_info, cl_uint,
};
use penstock_wire::cuda::{self, BUILD_GLOBALS, GLOBALS_OPTION};
use penstock_wire::status::Status;

use super::answer::{Answer, Place};
use super::context::Context;
use super::device::Device;
use super::module::Module;
use super::object::{self, Body, Object};

pub(super) struct Program {
    device: &'static Object<Device>,
    image: Vec<u8>,
    built: Mutex<Built>,
}

/// Result of the last build.
#[derive(Default)]
struct Built {
    /// `None` before the first build.
    module: Option<Result<Arc<Module>, Status>>,
    options: String,
    log: String,
}

impl Body for Program {
    type Raw = _cl_program;
    const TAG: usize = 0x5043_4404;
    const WRONG: Status = Status::INVALID_PROGRAM;
}

impl Program {
    fn built(&self) -> MutexGuard<'_, Built> {
        self.built.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the module, if the program has been built.
    pub(super) fn module(&self) -> Result<Arc<Module>, Status> {
        match &self.built().module {
            Some(Ok(module)) => Ok(module.clone()),
            _ => Err(Status(CL_INVALID_PROGRAM_EXECUTABLE)),
        }
    }

    fn build(&self, options: &str) -> Result<(), Status> {
        // Loaded without the lock: it may take long, and others may ask meanwhile.
        let (loaded, log) = Module::load(self.device, &self.image);
        let loaded = loaded.map(Arc::new);
        let status = loaded.as_ref().map(|_| ()).map_err(|&status| status);
        let log = match status {
            Ok(()) => log,
            Err(status) => {
                format!("{log}\nthe module could not be loaded: {status}").trim().to_owned()
            }
        };
        *self.built() = Built { module: Some(loaded), options: options.to_owned(), log };
        status
    }

    fn build_answer(&self, name: u32) -> Result<Answer, Status> {
        let built = self.built();
        let module = built.module.as_ref();
        Ok(match name {
            CL_PROGRAM_BUILD_STATUS => Answer::int(match module {
                None => CL_BUILD_NONE,
                Some(Ok(_)) => CL_BUILD_SUCCESS,
                Some(Err(_)) => CL_BUILD_ERROR,
            }),
            CL_PROGRAM_BUILD_OPTIONS => Answer::text(&built.options),
            CL_PROGRAM_BUILD_LOG => Answer::text(&built.log),
            CL_PROGRAM_BINARY_TYPE => Answer::uint(match module {
                Some(Ok(_)) => CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
                _ => CL_PROGRAM_BINARY_TYPE_NONE,
            }),
            CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE => Answer::sizes(&[0]),
            BUILD_GLOBALS => {
                let module = module
                    .and_then(|module| module.as_ref().ok())
                    .ok_or(Status::INVALID_VALUE)?
                    .clone();
                let asked = asked_globals(&built.options);
                Answer::bytes(cuda::write_globals(&module.globals(asked.as_deref())))
            }
            _ => return Err(Status::INVALID_VALUE),
        })
    }

    fn answer(&self, name: u32) -> Result<Answer, Status> {
        let names = || self.module().map(|module| module.kernel_names());
        Ok(match name {
            CL_PROGRAM_NUM_KERNELS => Answer::sizes(&[names()?.len()]),
            CL_PROGRAM_KERNEL_NAMES => Answer::text(&names()?.join(";")),
            CL_PROGRAM_NUM_DEVICES => Answer::uint(1),
            CL_PROGRAM_DEVICES => Answer::pointer(self.device.handle().cast_const()),
            CL_PROGRAM_BINARY_SIZES => Answer::sizes(&[self.image.len()]),
            _ => return Err(Status::INVALID_VALUE),
        })
    }
}

/// Returns the names behind [`GLOBALS_OPTION`]; `None` if the option was not given.
fn asked_globals(options: &str) -> Option<Vec<String>> {
    let lists = options.split_whitespace().filter_map(|option| option.strip_prefix(GLOBALS_OPTION));
    let mut asked = None;
    for list in lists {
        let names = list.split(',').filter(|name| !name.is_empty()).map(str::to_owned);
        asked.get_or_insert_with(Vec::new).extend(names);
    }
    asked
}

pub(super) unsafe extern "C" fn with_binary(
    context: cl_context,
    count: cl_uint,
    devices: *const cl_device_id,
    lengths: *const usize,
    binaries: *mut *const c_uchar,
    statuses: *mut cl_int,
    code: *mut cl_int,
) -> cl_program {
    let make = || {
        // SAFETY: the caller passes a live handle of this platform.
        let context = unsafe { object::get::<Context>(context) }?;
        if count != 1 || devices.is_null() || lengths.is_null() || binaries.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: each list has one entry.
        let (device, length, binary) = unsafe { (devices.read(), lengths.read(), binaries.read()) };
        // "CL_INVALID_DEVICE if any device in device_list is not in the list of devices associated
        // with context."
        if device != context.device.handle() {
            return Err(Status::INVALID_DEVICE);
        }
        let is_there = length > 0 && !binary.is_null();
        if !statuses.is_null() {
            // SAFETY: the list has one entry. The build finds out whether it is a module.
            unsafe { statuses.write(if is_there { 0 } else { Status::INVALID_VALUE.0 }) };
        }
        if !is_there {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the caller passes a binary of this length.
        let image = unsafe { std::slice::from_raw_parts(binary, length) }.to_vec();
        Ok(object::give(Object::new(Program {
            device: context.device,
            image,
            built: Mutex::default(),
        })))
    };
    // SAFETY: the caller passes null or a writable location.
    unsafe { object::made(code, make) }
}

type Notify = Option<unsafe extern "C" fn(cl_program, *mut c_void)>;

pub(super) unsafe extern "C" fn build(
    program: cl_program,
    _count: cl_uint,
    _devices: *const cl_device_id,
    options: *const c_char,
    notify: Notify,
    data: *mut c_void,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let built = unsafe { object::share::<Program>(program) }?;
        let options = if options.is_null() {
            String::new()
        } else {
            // SAFETY: options end with a NUL.
            unsafe { CStr::from_ptr(options) }.to_string_lossy().into_owned()
        };
        let status = built.build(&options);
        if let Some(notify) = notify {
            // SAFETY: the caller's function with its data, called once.
            unsafe { notify(program, data) };
        }
        status
    })
}

pub(super) unsafe extern "C" fn release(program: cl_program) -> cl_int {
    // SAFETY: the caller gives up its own reference.
    unsafe { object::release::<Program>(program) }
}

pub(super) unsafe extern "C" fn get_info(
    program: cl_program,
    name: cl_program_info,
    size: usize,
    value: *mut c_void,
    true_size: *mut usize,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let program = unsafe { object::get::<Program>(program) }?;
        let place = Place { size, value, true_size };
        if name != CL_PROGRAM_BINARIES {
            // SAFETY: the caller passes locations of the size that it names.
            return unsafe { place.write(&program.answer(name)?) };
        }
        // "an array of n pointers allocated by the caller": one, or null if it is not wanted.
        let pointer_bytes = size_of::<*mut u8>();
        if !value.is_null() {
            if size < pointer_bytes {
                return Err(Status::INVALID_VALUE);
            }
            // SAFETY: there is one pointer.
            let target = unsafe { value.cast::<*mut u8>().read() };
            if !target.is_null() {
                let image = &program.image;
                // SAFETY: it has the number of bytes that CL_PROGRAM_BINARY_SIZES reported.
                unsafe { target.copy_from_nonoverlapping(image.as_ptr(), image.len()) };
            }
        }
        if !true_size.is_null() {
            // SAFETY: the caller passes null or a writable location.
            unsafe { true_size.write(pointer_bytes) };
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn get_build_info(
    program: cl_program,
    _device: cl_device_id,
    name: cl_program_build_info,
    size: usize,
    value: *mut c_void,
    true_size: *mut usize,
) -> cl_int {
    object::code(|| {
        // SAFETY: the caller passes a live handle of this platform.
        let program = unsafe { object::get::<Program>(program) }?;
        // SAFETY: the caller passes locations of the size that it names.
        unsafe { Place { size, value, true_size }.write(&program.build_answer(name)?) }
    })
}

#[cfg(test)]
mod tests {
    use super::asked_globals;

    #[test]
    fn the_option_names_variables() {
        assert_eq!(asked_globals("-cl-kernel-arg-info"), None);
        assert_eq!(asked_globals("--globals="), Some(Vec::new()));
        let both = Some(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(asked_globals("--globals=a,b -cl-kernel-arg-info"), both);
    }
}

//! Reports on programs: everything that a client may query after a build, in one answer.

use std::ffi::CString;
use std::iter;

use penstock_cl_sys::{
    CL_KERNEL_ATTRIBUTES, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, CL_KERNEL_GLOBAL_WORK_SIZE,
    CL_KERNEL_LOCAL_MEM_SIZE, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
    CL_KERNEL_PRIVATE_MEM_SIZE, CL_KERNEL_SPILL_MEM_SIZE_INTEL, CL_KERNEL_WORK_GROUP_SIZE,
    CL_PROGRAM_BINARIES, CL_PROGRAM_BINARY_SIZES, CL_PROGRAM_BINARY_TYPE,
    CL_PROGRAM_BINARY_TYPE_EXECUTABLE, CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE,
    CL_PROGRAM_BUILD_LOG, CL_PROGRAM_BUILD_OPTIONS, CL_PROGRAM_BUILD_STATUS, CL_PROGRAM_DEVICES,
    CL_PROGRAM_IL, CL_PROGRAM_KERNEL_NAMES, CL_PROGRAM_NUM_KERNELS,
    CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT, CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT,
};
use penstock_process::Lock;
use penstock_wire::describe::{BuildReport, Info, KernelDescription};
use penstock_wire::limits;
use penstock_wire::status::Status;
use penstock_wire::text::to_bytes;

use super::api::{self, function};
use super::context::{Context, handles};
use super::device::Device as OwnDevice;
use super::kernel::Kernel;
use super::program::{ARG_INFO_OPTION, Program, raw, some_start};
use crate::driver;
use crate::driver::{Device, DeviceDriver, KernelDriver, ProgramDriver};

const BUILD_QUERIES: [u32; 5] = [
    CL_PROGRAM_BUILD_STATUS,
    CL_PROGRAM_BUILD_OPTIONS,
    CL_PROGRAM_BUILD_LOG,
    CL_PROGRAM_BINARY_TYPE,
    CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE,
];

const PROGRAM_QUERIES: [u32; 5] = [
    CL_PROGRAM_NUM_KERNELS,
    CL_PROGRAM_KERNEL_NAMES,
    CL_PROGRAM_IL,
    CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT,
    CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT,
];

const WORK_GROUP_QUERIES: [u32; 7] = [
    CL_KERNEL_WORK_GROUP_SIZE,
    CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
    CL_KERNEL_LOCAL_MEM_SIZE,
    CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
    CL_KERNEL_PRIVATE_MEM_SIZE,
    CL_KERNEL_GLOBAL_WORK_SIZE,
    CL_KERNEL_SPILL_MEM_SIZE_INTEL,
];

impl ProgramDriver for Program {
    fn build(&self, devices: &[Device], options: Option<&str>) -> Result<(), Status> {
        let options = self.with_arg_info(options).ok_or(Status::INVALID_BUILD_OPTIONS)?;
        self.build_as_given(devices, Some(&options))
    }

    fn compile(
        &self,
        devices: &[Device],
        options: Option<&str>,
        headers: &[(String, driver::Program)],
    ) -> Result<(), Status> {
        let compile = function!(clCompileProgram)?;
        let options = self.with_arg_info(options).ok_or(Status::INVALID_COMPILER_OPTIONS)?;
        let list = handles(devices)?;
        let names: Result<Vec<_>, _> =
            headers.iter().map(|(name, _)| CString::new(to_bytes(name))).collect();
        let names = names.map_err(|_| Status::INVALID_VALUE)?;
        let mut name_starts: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let programs: Vec<_> =
            headers.iter().map(|(_, program)| raw(program)).collect::<Result<_, Status>>()?;
        let (number, header_number) = (api::count(list.len())?, api::count(programs.len())?);
        // "CL_INVALID_VALUE if num_input_headers is zero and header_include_names or input_headers
        // are not NULL".
        let name_start =
            if names.is_empty() { std::ptr::null_mut() } else { name_starts.as_mut_ptr() };
        // SAFETY: all lists have their named lengths, and all texts end with a NUL. Without a
        // callback the call blocks until the compilation has ended.
        api::check(unsafe {
            compile(
                self.raw(),
                number,
                some_start(&list),
                options.as_ptr(),
                header_number,
                some_start(&programs),
                name_start,
                None,
                std::ptr::null_mut(),
            )
        })
    }

    fn set_spec_constant(&self, id: u32, value: &[u8]) -> Result<(), Status> {
        self.context().platform().needs(2, 2)?;
        // "CL_INVALID_PROGRAM if program is not a valid program object created from an intermediate
        // language". PoCL 3.1 ends the process for a program whose link has failed.
        if !self.is_of_il() {
            return Err(Status::INVALID_PROGRAM);
        }
        let set = function!(clSetProgramSpecializationConstant)?;
        // SAFETY: the program lives, and the value has its size.
        api::check(unsafe { set(self.raw(), id, value.len(), value.as_ptr().cast()) })
    }

    fn kernel(&self, name: &str) -> Result<Box<dyn KernelDriver>, Status> {
        Ok(Box::new(Kernel::new(self.context(), self.raw(), name)?))
    }

    fn shows_arg_info(&self) -> bool {
        if !self.arg_info_was_added() {
            return true;
        }
        let Some(device) = self.context().devices().first() else { return false };
        shows_arg_info(self.context(), device, self.had_options())
    }

    fn report(&self, status: Result<(), Status>, devices: &[(u32, Device)]) -> BuildReport {
        let infos: Vec<(u32, Info)> =
            devices.iter().map(|(index, device)| (*index, self.build_info(device))).collect();
        let executable = CL_PROGRAM_BINARY_TYPE_EXECUTABLE.to_ne_bytes();
        let has_kernels = infos.iter().any(|(_, info)| {
            info.iter().any(|(name, bytes)| {
                *name == CL_PROGRAM_BINARY_TYPE && bytes.as_slice() == executable
            })
        });
        let info =
            PROGRAM_QUERIES.iter().filter_map(|&name| Some((name, self.ask(name).ok()?))).collect();
        BuildReport {
            status: status.err().unwrap_or(Status::OK).0,
            devices: infos,
            kernels: if has_kernels { self.kernels(devices) } else { Vec::new() },
            info,
            ..BuildReport::default()
        }
    }

    fn load_report(&self, devices: &[(u32, Device)]) -> Vec<(u32, Info)> {
        // Nothing more: Intel's runtime ends the process if it is asked for the kernels of such a
        // program.
        let known = |device| {
            let queries = [CL_PROGRAM_BUILD_STATUS, CL_PROGRAM_BINARY_TYPE];
            queries
                .into_iter()
                .filter_map(|name| Some((name, self.build_answer(device, name).ok()?)))
                .collect()
        };
        devices.iter().map(|(index, device)| (*index, known(device))).collect()
    }

    fn binaries(&self, devices: &[(u32, Device)]) -> Result<Vec<(u32, Vec<u8>)>, Status> {
        // The driver's answers are in the order of its list of devices.
        let handles = words(&self.ask(CL_PROGRAM_DEVICES)?);
        let sizes = words(&self.ask(CL_PROGRAM_BINARY_SIZES)?);
        let all = sizes.iter().try_fold(0_usize, |sum, &size| sum.checked_add(size));
        if handles.len() != sizes.len()
            || all.is_none_or(|all| all as u64 > limits::REPLY_BYTES_MAX)
        {
            return Err(Status::OUT_OF_RESOURCES);
        }
        let mut binaries: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![0; size]).collect();
        let mut starts: Vec<*mut u8> = binaries
            .iter_mut()
            .map(
                |binary| if binary.is_empty() { std::ptr::null_mut() } else { binary.as_mut_ptr() },
            )
            .collect();
        let get = function!(clGetProgramInfo)?;
        // SAFETY: each pointer has room for the size that the driver named, or is null and skipped.
        api::check(unsafe {
            get(
                self.raw(),
                CL_PROGRAM_BINARIES,
                size_of_val(starts.as_slice()),
                starts.as_mut_ptr().cast(),
                std::ptr::null_mut(),
            )
        })?;
        let listed: Vec<(usize, Vec<u8>)> = handles.into_iter().zip(binaries).collect();
        let in_context =
            devices.iter().filter(|(_, device)| self.context().devices().contains(device));
        let found: Vec<(u32, &[u8])> = in_context
            .filter_map(|(index, device)| Some((*index, binary_of(device, &listed)?)))
            .collect();
        // Parts of a device share one binary, which the reply repeats for each part.
        if found.iter().map(|(_, binary)| binary.len() as u64).sum::<u64>()
            > limits::REPLY_BYTES_MAX
        {
            return Err(Status::OUT_OF_RESOURCES);
        }
        Ok(found.into_iter().map(|(index, binary)| (index, binary.to_vec())).collect())
    }
}

impl Program {
    fn build_info(&self, device: &Device) -> Info {
        let answer = |name| {
            let answer = self.build_answer(device, name);
            answer.map(|bytes| {
                if name == CL_PROGRAM_BUILD_OPTIONS { self.own_options(bytes) } else { bytes }
            })
        };
        BUILD_QUERIES.iter().filter_map(|&name| Some((name, answer(name).ok()?))).collect()
    }

    fn build_answer(&self, device: &Device, name: u32) -> Result<Vec<u8>, Status> {
        let get = function!(clGetProgramBuildInfo)?;
        let device = device.driver::<OwnDevice>()?.raw();
        // SAFETY: program and device live, and `query` passes a location of the given size.
        api::query(|size, value, true_size| unsafe {
            get(self.raw(), device, name, size, value, true_size)
        })
    }

    /// Returns the options as the client gave them.
    fn own_options(&self, bytes: Vec<u8>) -> Vec<u8> {
        let text = api::text(&bytes);
        if !self.arg_info_was_added() || !text.trim_end().ends_with(ARG_INFO_OPTION) {
            return bytes;
        }
        let text = text.trim_end();
        let own = text.get(..text.len() - ARG_INFO_OPTION.len()).unwrap_or_default();
        let mut own = own.strip_suffix(' ').unwrap_or(own).as_bytes().to_vec();
        own.push(0);
        own
    }

    fn ask(&self, name: u32) -> Result<Vec<u8>, Status> {
        let get = function!(clGetProgramInfo)?;
        // SAFETY: the program lives, and `query` passes a location of the given size.
        api::query(|size, value, true_size| unsafe {
            get(self.raw(), name, size, value, true_size)
        })
    }

    fn kernels(&self, devices: &[(u32, Device)]) -> Vec<KernelDescription> {
        let names =
            self.ask(CL_PROGRAM_KERNEL_NAMES).map(|bytes| api::text(&bytes)).unwrap_or_default();
        let names = names.split(';').map(str::trim).filter(|name| !name.is_empty());
        names
            .filter_map(|name| {
                Some(Kernel::new(self.context(), self.raw(), name).ok()?.describe(name, devices))
            })
            .collect()
    }
}

impl Kernel {
    fn describe(&self, name: &str, devices: &[(u32, Device)]) -> KernelDescription {
        let work_group = |device| {
            let answers = WORK_GROUP_QUERIES.iter().copied();
            answers
                .filter_map(|query| Some((query, self.work_group_info(device, query).ok()?)))
                .collect()
        };
        let args = self.arg_descriptions();
        KernelDescription {
            name: name.to_owned(),
            attributes: self
                .ask(CL_KERNEL_ATTRIBUTES)
                .map(|bytes| api::text(&bytes))
                .unwrap_or_default(),
            arg_info: args.is_some(),
            args: args.unwrap_or_else(|| vec![Default::default(); self.arg_count()]),
            work_group: devices
                .iter()
                .map(|(index, device)| (*index, work_group(device)))
                .collect(),
            ..KernelDescription::default()
        }
    }
}

/// Tests, once per device, whether kernels have argument descriptions that the options (empty or
/// null) do not ask for. PoCL 3.1 shows them with null options, Intel's runtime always, NVIDIA's
/// OpenCL never.
fn shows_arg_info(context: &Context, device: &Device, with_options: bool) -> bool {
    static KNOWN: Lock<Vec<((usize, bool), bool)>> = Lock::new(Vec::new());
    let key = (device.0.driver.number(), with_options);
    // Held during the test, so that other threads do not repeat it.
    let mut known = KNOWN.lock();
    if let Some((_, shows)) = known.iter().find(|(tried, _)| *tried == key) {
        return *shows;
    }
    // If the driver does not compile this kernel, there are no descriptions.
    let shows = try_arg_info(context, device, with_options).unwrap_or(false);
    known.push((key, shows));
    shows
}

fn try_arg_info(context: &Context, device: &Device, with_options: bool) -> Result<bool, Status> {
    let program = Program::with_source(context, b"kernel void probe(int argument) {}")?;
    program.build_as_given(std::slice::from_ref(device), with_options.then_some(c""))?;
    Ok(Kernel::new(context, program.raw(), "probe")?.arg_descriptions().is_some())
}

/// Returns a device's binary, or its parents': PoCL lists the whole device for a program on parts.
fn binary_of<'a>(device: &Device, listed: &'a [(usize, Vec<u8>)]) -> Option<&'a [u8]> {
    let own = |device: &OwnDevice| listed.iter().find(|(handle, _)| *handle == device.number());
    let device = device.driver::<OwnDevice>().ok()?;
    let (_, binary) = iter::successors(Some(device), |device| device.parent()).find_map(own)?;
    Some(binary.as_slice()).filter(|binary| !binary.is_empty())
}

/// Decodes a list of sizes or handles.
fn words(bytes: &[u8]) -> Vec<usize> {
    bytes.as_chunks().0.iter().map(|&word| usize::from_ne_bytes(word)).collect()
}

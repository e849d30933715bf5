//! Programs: lists of built-in kernels.

use penstock_cl_sys::{
    CL_BUILD_ERROR, CL_BUILD_NONE, CL_BUILD_SUCCESS, CL_PROGRAM_BINARY_TYPE,
    CL_PROGRAM_BINARY_TYPE_EXECUTABLE, CL_PROGRAM_BINARY_TYPE_NONE, CL_PROGRAM_BUILD_LOG,
    CL_PROGRAM_BUILD_OPTIONS, CL_PROGRAM_BUILD_STATUS, CL_PROGRAM_KERNEL_NAMES,
    CL_PROGRAM_NUM_KERNELS,
};
use penstock_process::{Guard, Lock};
use penstock_wire::describe::{BuildReport, Info};
use penstock_wire::status::Status;

use super::builtin::{BUILTINS, Builtin, names};
use super::kernel::{Kernel, describe};
use crate::answer::{int, sizes, text, uint};
use crate::driver::{Device, KernelDriver, ProgramDriver};

/// The words with which every program begins.
const BEGINNING: [&str; 2] = ["penstock", "null"];

/// Returns the kernels of a program, or the log of its build.
pub(super) fn parse(source: &[u8]) -> Result<Vec<&'static Builtin>, String> {
    let source = String::from_utf8_lossy(source);
    let mut words = source.split(|it: char| it.is_whitespace() || it == '\0');
    let mut words = words.by_ref().filter(|word| !word.is_empty());
    if !BEGINNING.iter().all(|word| words.next() == Some(word)) {
        let (beginning, all) = (BEGINNING.join(" "), names());
        return Err(format!(
            "The simulated device has no compiler. A program for it consists of the words \
             `{beginning}` and of names of its kernels, which are {all}."
        ));
    }
    let kernel = |name: &str| {
        let found = BUILTINS.iter().find(|builtin| builtin.name == name);
        let why = || format!("It has no kernel `{name}`. Its kernels are {}.", names());
        found.ok_or_else(|| format!("This program is for the simulated device. {}", why()))
    };
    words.map(kernel).collect()
}

pub(super) struct Program {
    source: Vec<u8>,
    built: Lock<Built>,
}

/// Result of the last build.
#[derive(Default)]
struct Built {
    /// `None` before the first build.
    kernels: Option<Result<Vec<&'static Builtin>, String>>,
    options: String,
}

impl Program {
    pub(super) fn new(source: Vec<u8>) -> Self {
        Self { source, built: Lock::default() }
    }

    fn built(&self) -> Guard<'_, Built> {
        self.built.lock()
    }

    fn kernels(&self) -> Result<Vec<&'static Builtin>, Status> {
        match &self.built().kernels {
            Some(Ok(kernels)) => Ok(kernels.clone()),
            _ => Err(Status::INVALID_PROGRAM_EXECUTABLE),
        }
    }

    fn build_info(&self) -> Info {
        let built = self.built();
        let (status, kind, log) = match &built.kernels {
            None => (CL_BUILD_NONE, CL_PROGRAM_BINARY_TYPE_NONE, ""),
            Some(Ok(_)) => (CL_BUILD_SUCCESS, CL_PROGRAM_BINARY_TYPE_EXECUTABLE, ""),
            Some(Err(log)) => (CL_BUILD_ERROR, CL_PROGRAM_BINARY_TYPE_NONE, log.as_str()),
        };
        vec![
            (CL_PROGRAM_BUILD_STATUS, int(status)),
            (CL_PROGRAM_BINARY_TYPE, uint(kind)),
            (CL_PROGRAM_BUILD_OPTIONS, text(&built.options)),
            (CL_PROGRAM_BUILD_LOG, text(log)),
        ]
    }
}

impl ProgramDriver for Program {
    fn build(&self, _devices: &[Device], options: Option<&str>) -> Result<(), Status> {
        let kernels = parse(&self.source);
        let built = kernels.as_ref().map(|_| ()).map_err(|_| Status::BUILD_PROGRAM_FAILURE);
        let options = options.unwrap_or_default().to_owned();
        *self.built() = Built { kernels: Some(kernels), options };
        built
    }

    fn shows_arg_info(&self) -> bool {
        true
    }

    fn report(&self, status: Result<(), Status>, devices: &[(u32, Device)]) -> BuildReport {
        let kernels = self.kernels().unwrap_or_default();
        let names: Vec<_> = kernels.iter().map(|builtin| builtin.name).collect();
        BuildReport {
            status: status.err().unwrap_or(Status::OK).0,
            devices: devices.iter().map(|(index, _)| (*index, self.build_info())).collect(),
            info: vec![
                (CL_PROGRAM_NUM_KERNELS, sizes(&[names.len()])),
                (CL_PROGRAM_KERNEL_NAMES, text(&names.join(";"))),
            ],
            kernels: kernels.iter().map(|builtin| describe(builtin, devices)).collect(),
            ..BuildReport::default()
        }
    }

    /// No program is made from binaries.
    fn load_report(&self, _devices: &[(u32, Device)]) -> Vec<(u32, Info)> {
        Vec::new()
    }

    fn binaries(&self, _devices: &[(u32, Device)]) -> Result<Vec<(u32, Vec<u8>)>, Status> {
        Ok(Vec::new())
    }

    fn kernel(&self, name: &str) -> Result<Box<dyn KernelDriver>, Status> {
        let kernels = self.kernels()?;
        let found = kernels.into_iter().find(|builtin| builtin.name == name);
        Ok(Box::new(Kernel::new(found.ok_or(Status::INVALID_KERNEL_NAME)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_of_the_device_build() {
        let names = |source: &str| -> Result<Vec<&str>, String> {
            Ok(parse(source.as_bytes())?.iter().map(|builtin| builtin.name).collect())
        };
        assert_eq!(names("penstock null\nadd\tendless\n\0"), Ok(vec!["add", "endless"]));
        assert_eq!(names("penstock null"), Ok(Vec::new()));
        for wrong in ["", "penstock", "null penstock add", "kernel void add(global int *a) {}"] {
            let log = names(wrong).unwrap_err();
            assert!(log.contains("no compiler") && log.contains("`penstock null`"), "{log}");
            assert!(log.contains("copy, add, scale"), "{log}");
        }
        let log = names("penstock null add divide").unwrap_err();
        assert!(log.contains("no kernel `divide`"), "{log}");
        assert!(parse(&[0xff, 0xfe]).is_err());
    }
}

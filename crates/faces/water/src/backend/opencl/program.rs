//! Programs and kernels of the node's OpenCL platforms.

use penstock_cl_sys::CL_PROGRAM_BUILD_LOG;
use penstock_device::{Context, Device, Kernel, Program, Status};
use penstock_ggas::with_header;

use crate::backend::{Failure, refused};
use crate::command::Code;

/// A kernel, with what a launch must know about it.
#[derive(Debug)]
pub(super) struct MadeKernel {
    pub(super) kernel: Kernel,
    pub(super) args: usize,
    pub(super) name: String,
}

/// Identifies a built program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProgramKey {
    pub(super) device: u32,
    pub(super) code: Code,
    pub(super) options: String,
}

/// Builds a program for one device.
pub(super) fn build(
    context: &Context,
    device: &Device,
    code: &Code,
    options: &str,
) -> Result<Program, Failure> {
    let bad = |status: Status| refused(status.0, "build the program");
    let program = match code {
        Code::Source(source) => Program::with_source(context, &with_header(source)).map_err(bad)?,
        Code::Binary(binary) => {
            Program::with_binary(context, &[(device.clone(), binary.clone())]).1.map_err(bad)?
        }
    };
    match program.build(std::slice::from_ref(device), options) {
        Ok(()) => Ok(program),
        Err(status) => {
            let report = program.report(Err(status), &[(0, device.clone())]);
            let log = report
                .devices
                .iter()
                .flat_map(|(_, info)| info)
                .find(|(name, _)| *name == CL_PROGRAM_BUILD_LOG);
            let log = log
                .map(|(_, text)| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned());
            Err(Failure { log: log.unwrap_or_default(), ..refused(status.0, "build the program") })
        }
    }
}

/// Creates one kernel of a built program.
pub(super) fn kernel(
    program: &Program,
    device: &Device,
    name: &str,
) -> Result<MadeKernel, Failure> {
    let kernel = Kernel::new(program, name).map_err(|status| {
        let known = program.report(Ok(()), &[(0, device.clone())]).kernels;
        let names: Vec<_> = known.iter().map(|kernel| kernel.name.as_str()).collect();
        refused(
            status.0,
            &format!("find kernel `{name}` in the program; it has: {}", names.join(", ")),
        )
    })?;
    let args = kernel.arg_count();
    Ok(MadeKernel { kernel, args, name: name.to_owned() })
}

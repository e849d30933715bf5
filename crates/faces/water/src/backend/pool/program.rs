//! Programs and kernels on the pool. A build waits for a node's compiler, so it has a thread of its
//! own.

use std::collections::VecDeque;
use std::sync::Arc;

use penstock_cl_sys::{CL_INVALID_KERNEL_NAME, CL_PROGRAM_BUILD_LOG};
use penstock_client::{Context, Device, Error, Kernel, Program};

use super::desk::{BackendMessage, Desk};
use super::kernel::{PoolKernel, ProgramKey};
use crate::backend::{Failure, refused};
use crate::command::{Code, CommandId, ObjectId};
use crate::error::code;

/// Number of built programs that are kept for further kernels of the same code. An application has
/// a few programs, for a few devices each.
const PROGRAMS_KEPT: usize = 64;

/// A kernel to build.
#[derive(Debug)]
pub(super) struct KernelBuild {
    pub(super) id: CommandId,
    /// Id of the kernel.
    pub(super) object: ObjectId,
    pub(super) key: Box<ProgramKey>,
    /// Name of the kernel in the program.
    pub(super) name: String,
    pub(super) device: Arc<Device>,
}

/// Built programs, oldest first.
#[derive(Debug, Default)]
pub(super) struct Programs(VecDeque<(ProgramKey, Arc<Program>)>);

impl Programs {
    /// Keeps a program for further kernels.
    pub(super) fn keep(&mut self, key: ProgramKey, program: Arc<Program>) {
        if !self.0.iter().any(|(other, _)| *other == key) {
            self.0.push_back((key, program));
        }
        if self.0.len() > PROGRAMS_KEPT {
            self.0.pop_front();
        }
    }

    /// Starts a build, which ends with [`BackendMessage::Built`].
    pub(super) fn build(
        &self,
        build: KernelBuild,
        context: &Arc<Context>,
        desk: &Desk,
    ) -> Result<(), Failure> {
        let KernelBuild { id, object, key, name, device } = build;
        let ready =
            self.0.iter().find(|(other, _)| *other == *key).map(|(_, program)| Arc::clone(program));
        let (context, desk) = (Arc::clone(context), desk.clone());
        let work = move || {
            let bad = |what: &str, error: &Error| desk.refusal(device.node(), what, error);
            let made = ready
                .map_or_else(|| build_program(&context, &device, &key, &bad), Ok)
                .and_then(|program| kernel(&program, &name, &bad).map(|made| (program, made)));
            desk.tell(BackendMessage::Built { id, object, key, made });
        };
        penstock_process::start("wtr-build", work).map(drop).map_err(|error| Failure {
            code: code::OUT_OF_HOST_MEMORY,
            message: format!("cannot start a thread to build a program: {error}"),
            log: String::new(),
        })
    }
}

type Bad<'a> = &'a dyn Fn(&str, &Error) -> Failure;

fn build_program(
    context: &Arc<Context>,
    device: &Arc<Device>,
    ProgramKey { code, options, .. }: &ProgramKey,
    bad: Bad<'_>,
) -> Result<Arc<Program>, Failure> {
    const WHAT: &str = "build the program";
    let devices = std::slice::from_ref(device);
    let program = match code {
        Code::Source(source) => {
            Program::with_source_for(context, devices, source).map_err(|error| bad(WHAT, &error))?
        }
        Code::Binary(binary) => {
            let (program, statuses) =
                Program::with_binaries(context, &[(device, binary.as_slice())])
                    .map_err(|error| bad(WHAT, &error))?;
            match statuses.first() {
                Some(status) if status.is_error() => return Err(refused(status.0, WHAT)),
                _ => program,
            }
        }
    };
    program.build(devices, options.as_str()).map(|()| Arc::clone(&program)).map_err(|error| {
        let log = program.build_info(device, CL_PROGRAM_BUILD_LOG).unwrap_or_default();
        let failure = match &error {
            Error::Refused { status, .. } => refused(status.0, WHAT),
            _ => bad(WHAT, &error),
        };
        Failure { log: String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned(), ..failure }
    })
}

fn kernel(program: &Arc<Program>, name: &str, bad: Bad<'_>) -> Result<PoolKernel, Failure> {
    let known = program.kernels();
    let Some(description) = known.iter().find(|kernel| kernel.name == name) else {
        let names: Vec<_> = known.iter().map(|kernel| kernel.name.as_str()).collect();
        let what = format!("find kernel `{name}` in the program; it has: {}", names.join(", "));
        return Err(refused(CL_INVALID_KERNEL_NAME, &what));
    };
    let kernel = Kernel::new(program, Arc::clone(description))
        .map_err(|error| bad("create the kernel", &error))?;
    Ok(PoolKernel { kernel })
}

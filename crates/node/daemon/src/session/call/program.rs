//! Programs: creation, builds and queries. Another thread does long work and answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_device as device;
use penstock_wire::calls::{Attached, Serve, Served, to_worker};
use penstock_wire::describe::{BuildOrder, BuildReport, BuiltInKernels, LoadReport};
use penstock_wire::id::kind;
use penstock_wire::{FrameError, Id, Status, frame, limits};

use crate::builder::Origin;
use crate::session::headers::{HeadersError, Tree};
use crate::session::program::Program;
use crate::session::shared_session::SharedSession;
use crate::session::{Objects, Session};

impl Session {
    /// Runs `work` on another thread in its turn; that thread answers the request with the result.
    fn in_thread<T: 'static>(
        &mut self,
        request: Id<kind::Request>,
        answer: fn(&SharedSession, Id<kind::Request>, Result<T, Status>),
        work: impl FnOnce() -> Result<T, Status> + Send + 'static,
    ) {
        let shared = self.shared.clone();
        let added = self.shared.builds.add(move || {
            // Nobody waits for a build that was in line when its session ended.
            if !shared.has_ended() {
                answer(&shared, request, work());
            }
        });
        if let Err(status) = added {
            self.shared.reply::<()>(request, &Err(status));
        }
    }

    fn build(
        &mut self,
        request: Id<kind::Request>,
        id: Id<kind::Program>,
        order: BuildOrder,
        compile: bool,
    ) {
        // Also if this build does not begin: the files and the options that came with them are not
        // those of the next build.
        let named = self.objects.programs.get(id);
        let waiting = named.ok().and_then(|program| program.take_headers());
        let prepared = self.objects.programs.get(id).and_then(|program| {
            let devices = self.objects.devices_with_indices(&order.devices)?;
            let headers = order.programs.iter().map(|(name, id)| {
                let header = self.objects.programs.get(Id::new(*id))?;
                Ok((name.clone(), header.device()?.clone()))
            });
            let headers = headers.collect::<Result<Vec<_>, Status>>()?;
            Ok((program.begin_build()?, devices, headers))
        });
        let (busy, indexed, headers) = match prepared {
            Ok(prepared) => prepared,
            Err(status) => return self.shared.reply::<()>(request, &Err(status)),
        };
        let rehearsal = self.objects.rehearse_build(&busy.0, &order, compile, waiting.is_some());
        self.in_thread(request, answer, move || {
            let program = busy.0.device()?;
            let tree = match waiting.map(|waiting| waiting?.lay_out()).transpose() {
                Ok(tree) => tree,
                Err(error) => return Ok(not_laid_out(&error, &order, compile)),
            };
            let options = tree.as_ref().map(Tree::options).or(order.options.as_deref());
            let rehearsed = rehearsal.map_or(Ok(()), |it| it.with_options(options).perform());
            let mut report = match rehearsed {
                Err(report) => *report,
                Ok(()) => {
                    let devices: Vec<device::Device> =
                        indexed.iter().map(|(_, device)| device.clone()).collect();
                    let built = if compile {
                        program.compile(&devices, options, &headers)
                    } else {
                        program.build(&devices, options)
                    };
                    program.name_variables(order.globals);
                    program.report(built, &indexed)
                }
            };
            if let Some(tree) = &tree {
                tree.tidy(&mut report, order.options.as_deref());
            }
            Ok(report)
        });
    }

    fn link(&mut self, call: &to_worker::LinkProgram, order: BuildOrder) -> Result<(), FrameError> {
        self.objects.programs.vacant(call.program)?;
        let prepared = self.objects.contexts.get(call.context).cloned().and_then(|context| {
            let devices = self.objects.devices_with_indices(&order.devices)?;
            let inputs = order
                .programs
                .iter()
                .map(|(_, id)| Ok(self.objects.programs.get(Id::new(*id))?.device()?.clone()));
            Ok((context, devices, inputs.collect::<Result<Vec<_>, Status>>()?))
        });
        let (context, indexed, inputs) = match prepared {
            Ok(prepared) => prepared,
            Err(status) => {
                self.objects.programs.insert(call.program, Err(Status::INVALID_PROGRAM))?;
                self.shared.reply::<()>(call.request, &Err(status));
                return Ok(());
            }
        };
        let rehearsal = self.objects.rehearse_link(&order);
        // Inserted at once, empty: the client uses it as soon as it has the answer.
        let program = Arc::new(Program::default());
        self.objects.programs.insert(call.program, Ok(program.clone()))?;
        self.in_thread(call.request, answer, move || {
            let _busy = program.begin_build()?;
            if let Some(report) = rehearsal.and_then(|rehearsal| rehearsal.perform().err()) {
                return Ok(*report);
            }
            let devices: Vec<device::Device> =
                indexed.iter().map(|(_, device)| device.clone()).collect();
            let (linked, made) =
                device::Program::link(&context, &devices, order.options.as_deref(), &inputs);
            match made {
                Some(made) => Ok(program.set_device(made).report(linked, &indexed)),
                None => Err(linked.err().unwrap_or(Status::INVALID_PROGRAM)),
            }
        });
        Ok(())
    }
}

/// Returns the report of a build whose files the worker cannot lay out.
fn not_laid_out(error: &HeadersError, order: &BuildOrder, compile: bool) -> BuildReport {
    let status =
        if compile { Status::COMPILE_PROGRAM_FAILURE } else { Status::BUILD_PROGRAM_FAILURE };
    BuildReport::failure(status, &order.devices, order.options.as_deref(), &error.to_string())
}

/// Answers with a report, also after a failure: its log says why.
fn answer(shared: &SharedSession, request: Id<kind::Request>, report: Result<BuildReport, Status>) {
    match report {
        Ok(report) => {
            let bytes = frame::encode(&report);
            if bytes.len() as u64 > limits::REPLY_BYTES_MAX {
                return shared.reply::<()>(request, &Err(Status::OUT_OF_RESOURCES));
            }
            shared.reply_bytes(request, Status(report.status), bytes);
        }
        Err(status) => shared.reply::<()>(request, &Err(status)),
    }
}

/// Whether a source may print. If so, output is collected before the end of commands is told.
fn may_print(source: &[u8]) -> bool {
    memchr::memmem::find(source, b"printf").is_some()
}

impl Serve<to_worker::CreateProgramWithSource> for Session {
    fn serve(&mut self, call: &to_worker::CreateProgramWithSource, with: Attached<'_>) -> Served {
        let source = with.payload.read_all()?;
        if may_print(&source) {
            self.shared.prints.store(true, Ordering::Release);
        }
        self.objects.programs.create(call.program, |_| {
            let context = self.objects.contexts.get(call.context)?;
            let made = device::Program::with_source(context, &source)?;
            Ok(Program::of(made, Origin::Source(source)))
        })
    }
}

impl Serve<to_worker::CreateProgramWithBinary> for Session {
    fn serve(&mut self, call: &to_worker::CreateProgramWithBinary, with: Attached<'_>) -> Served {
        self.objects.programs.vacant(call.program)?;
        let binaries: Vec<(u32, Vec<u8>)> =
            frame::decode("CreateProgramWithBinary", &with.payload.read_all()?)?;
        // Whether a binary prints is unknown.
        self.shared.prints.store(true, Ordering::Release);
        let indices: Vec<u32> = binaries.iter().map(|(index, _)| *index).collect();
        let (statuses, made) = self.objects.with_binaries(call.context, binaries);
        let status = made.as_ref().err().copied().unwrap_or(Status::OK);
        let devices = self.objects.devices_with_indices(&indices).unwrap_or_default();
        let devices = made.as_ref().map_or_else(|_| Vec::new(), |it| it.load_report(&devices));
        self.objects.programs.insert(call.program, made.map(Program::new))?;
        self.shared.reply_bytes(
            call.request,
            status,
            frame::encode(&LoadReport { statuses, devices }),
        );
        Ok(())
    }
}

impl Objects {
    fn with_binaries(
        &self,
        context: Id<kind::Context>,
        binaries: Vec<(u32, Vec<u8>)>,
    ) -> (Vec<i32>, Result<device::Program, Status>) {
        let count = binaries.len();
        let prepared = self.contexts.get(context).and_then(|context| {
            let each = binaries
                .into_iter()
                .map(|(index, binary)| Ok((self.device(index)?.clone(), binary)));
            Ok((context, each.collect::<Result<Vec<_>, Status>>()?))
        });
        match prepared {
            Ok((context, binaries)) => device::Program::with_binary(context, &binaries),
            Err(status) => (vec![status.0; count], Err(status)),
        }
    }
}

impl Serve<to_worker::CreateProgramWithIl> for Session {
    fn serve(&mut self, call: &to_worker::CreateProgramWithIl, with: Attached<'_>) -> Served {
        let il = with.payload.read_all()?;
        self.shared.prints.store(true, Ordering::Release);
        self.objects.programs.create(call.program, |_| {
            let context = self.objects.contexts.get(call.context)?;
            let made = device::Program::with_il(context, &il)?;
            Ok(Program::of(made, Origin::Il { code: il, constants: Vec::new() }))
        })
    }
}

impl Serve<to_worker::CreateProgramWithBuiltInKernels> for Session {
    fn serve(
        &mut self,
        call: &to_worker::CreateProgramWithBuiltInKernels,
        with: Attached<'_>,
    ) -> Served {
        let built_in: BuiltInKernels =
            frame::decode("CreateProgramWithBuiltInKernels", &with.payload.read_all()?)?;
        let devices = self.objects.devices(&built_in.devices);
        self.objects.programs.create(call.program, |_| {
            let context = self.objects.contexts.get(call.context)?;
            device::Program::with_built_in(context, &devices?, &built_in.names).map(Program::new)
        })?;
        self.shared.reply(call.request, &self.objects.programs.get(call.program).map(drop));
        Ok(())
    }
}

impl Serve<to_worker::ReleaseProgram> for Session {
    fn serve(&mut self, call: &to_worker::ReleaseProgram, _: Attached<'_>) -> Served {
        self.objects.programs.remove(call.program);
        Ok(())
    }
}

impl Serve<to_worker::ProgramHeaders> for Session {
    fn serve(&mut self, call: &to_worker::ProgramHeaders, with: Attached<'_>) -> Served {
        let headers = self.shared.headers.take(&with.payload.read_all()?)?;
        if headers.as_ref().is_ok_and(|headers| headers.may_print(may_print)) {
            self.shared.prints.store(true, Ordering::Release);
        }
        // Without such a program, the build fails.
        if let Ok(program) = self.objects.programs.get(call.program) {
            program.set_headers(headers);
        }
        Ok(())
    }
}

impl Serve<to_worker::BuildProgram> for Session {
    fn serve(&mut self, call: &to_worker::BuildProgram, with: Attached<'_>) -> Served {
        let order = frame::decode("BuildProgram", &with.payload.read_all()?)?;
        self.build(call.request, call.program, order, false);
        Ok(())
    }
}

impl Serve<to_worker::CompileProgram> for Session {
    fn serve(&mut self, call: &to_worker::CompileProgram, with: Attached<'_>) -> Served {
        let order = frame::decode("CompileProgram", &with.payload.read_all()?)?;
        self.build(call.request, call.program, order, true);
        Ok(())
    }
}

impl Serve<to_worker::LinkProgram> for Session {
    fn serve(&mut self, call: &to_worker::LinkProgram, with: Attached<'_>) -> Served {
        let order = frame::decode("LinkProgram", &with.payload.read_all()?)?;
        self.link(call, order)
    }
}

impl Serve<to_worker::ProgramBinaries> for Session {
    fn serve(&mut self, call: &to_worker::ProgramBinaries, _: Attached<'_>) -> Served {
        let devices: Vec<(u32, device::Device)> =
            (0..).zip(self.objects.devices.iter().cloned()).collect();
        let binaries = self.objects.programs.get(call.program).and_then(|it| {
            let program = it.device()?;
            // If a build ended between the answers about sizes and bytes, the driver would write
            // too much.
            let _busy = it.begin_build()?;
            self.shared.launches.for_binaries(|| program.binaries(&devices))
        });
        self.shared.reply(call.request, &binaries);
        Ok(())
    }
}

impl Serve<to_worker::SetSpecConstant> for Session {
    fn serve(&mut self, call: &to_worker::SetSpecConstant, with: Attached<'_>) -> Served {
        let value = with.payload.read_all()?;
        let program = self.objects.programs.get(call.program);
        let set = program.and_then(|it| {
            let _busy = it.begin_build()?;
            it.device()?.set_spec_constant(call.spec_id.get(), &value)?;
            it.note_constant(call.spec_id.get(), value);
            Ok(())
        });
        self.shared.reply(call.request, &set);
        Ok(())
    }
}

impl Serve<to_worker::ShowsArgInfo> for Session {
    fn serve(&mut self, call: &to_worker::ShowsArgInfo, _: Attached<'_>) -> Served {
        let program = self.objects.programs.get(call.program).and_then(|it| it.device().cloned());
        match program {
            // This may compile a program.
            Ok(program) => {
                let answer = |shared: &SharedSession, request, shows: Result<bool, Status>| {
                    shared.reply(request, &shows)
                };
                self.in_thread(call.request, answer, move || Ok(program.shows_arg_info()));
            }
            Err(status) => self.shared.reply::<()>(call.request, &Err(status)),
        }
        Ok(())
    }
}

impl Serve<to_worker::UnloadCompiler> for Session {
    fn serve(&mut self, call: &to_worker::UnloadCompiler, _: Attached<'_>) -> Served {
        if let Ok(platform) = self.objects.platform(call.platform.get()) {
            platform.unload_compiler();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_print_are_known() {
        assert!(may_print(b"kernel void k() { printf(\"x\"); }"));
        assert!(!may_print(b"kernel void k() {}"));
        assert!(!may_print(b""));
    }
}

//! `penstock vm run`: a program in a small guest, on the devices of this host.
//!
//! Everything lies in a private directory, which the guard removes however this process ends. The
//! daemon, QEMU and its helper are children of this process, and the kernel ends them with it.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use penstock_client::config::Surroundings;
use penstock_process::search;
use penstock_vm::VmError;
use penstock_vm::host::{self, End, Plan, Report, Stopped, Tools};
use penstock_vm::image::kernel::{self, Kernel};
use penstock_vm::machine::{Accelerator, Boot, Machine};
use serde_json::{Value, json};

use super::args::{AUTO, VmRunArgs};
use super::link::{self, Link, Memory};
use super::root;
use crate::failure::Failure;
use crate::run::{PrivateDirectory, guard};
use crate::table;

/// Exit status if the program took too long, as that of `timeout`.
const TOO_LONG: u8 = 124;

/// QEMU, as packages name it.
pub const QEMU: &str = "qemu-system-x86_64";
const KVM: &str = "/dev/kvm";

/// Memory of a guest besides its files: the kernel takes 60 MiB of it, and a client of the pool has
/// buffers.
const MEMORY_MIB: u64 = 192;

/// Least memory besides the files. With less, the kernel stops before it can say why.
const MEMORY_MIB_MIN: u64 = 96;

/// Boots a guest, and runs the program in it.
pub fn run(args: &VmRunArgs) -> Result<ExitCode, Failure> {
    let directory = PrivateDirectory::create(&Surroundings::of_process()).map_err(set_up)?;
    // The guard removes the directory, also if this process is interrupted.
    guard::start(&directory, false).map_err(set_up)?;
    let tools = tools()?;
    let link = Link::set_up(args, tools.vsock_helper.is_some(), &directory).map_err(set_up)?;
    let machine = machine(args, &link, &directory)?;
    // Opened before the program runs, so that nothing runs whose report cannot be written.
    let output = args.output.as_deref().map(|path| {
        let opened = File::create(path);
        opened.map_err(|error| set_up(Failure::file(path, "write")(error)))
    });
    let output = output.transpose()?;
    let Ran { report, accelerator } = run_machine(args, machine, &tools, &link, &directory)?;
    if args.json {
        tell(args, output, &document(&report, accelerator, link.name))?;
    }
    if args.verbose {
        let (boot, program) = (report.boot.as_secs_f64(), report.program.as_secs_f64());
        eprintln!(
            "penstock: the guest started within {boot:.1} s, the program took {program:.1} s"
        );
    }
    Ok(ExitCode::from(match report.end {
        End::Exit(status) => status,
        End::NotStarted { status, why } => {
            table::say(&format!("in the guest: {}", table::printable(&why)));
            status
        }
        End::TooLong => {
            let limit = args.timeout.unwrap_or_default();
            eprintln!("penstock: the program took longer than {limit} s (--timeout)");
            TOO_LONG
        }
    }))
}

/// What became of the guest, for other programs.
fn document(report: &Report, accelerator: Accelerator, way: &str) -> Value {
    let (end, status, why) = match &report.end {
        End::Exit(status) => ("exited", *status, None),
        End::NotStarted { status, why } => ("not started", *status, Some(table::printable(why))),
        End::TooLong => ("too long", TOO_LONG, None),
    };
    let accelerator = match accelerator {
        Accelerator::Kvm => "kvm",
        Accelerator::Tcg => "tcg",
    };
    json!({
        "end": end,
        "exit_status": status,
        "why": why,
        "accelerator": accelerator,
        "transport": way,
        "boot_s": report.boot.as_secs_f64(),
        "program_s": report.program.as_secs_f64(),
    })
}

/// Writes the document apart from the program's own output.
fn tell(args: &VmRunArgs, output: Option<File>, document: &Value) -> Result<(), Failure> {
    let text = format!("{document:#}\n");
    match (output, &args.output) {
        (Some(mut file), Some(path)) => {
            file.write_all(text.as_bytes()).map_err(Failure::file(path, "write"))
        }
        // If standard error is closed, nobody wants the document.
        _ => {
            _ = std::io::stderr().write_all(text.as_bytes());
            Ok(())
        }
    }
}

fn set_up(failure: Failure) -> Failure {
    match failure {
        Failure::Execute { .. } => failure,
        other => Failure::Run(Box::new(other)),
    }
}

fn tools() -> Result<Tools, Failure> {
    let qemu = search::program(QEMU.as_ref()).ok_or_else(|| VmError::Missing {
        what: QEMU.into(),
        remedy: "install it (Debian: apt install --no-install-recommends qemu-system-x86)".into(),
    })?;
    let penstock = std::env::current_exe().map_err(Failure::file(Path::new("penstock"), "find"))?;
    let name = "vhost-device-vsock";
    let near = beside("tools/bin").map(|folder| folder.join(name)).filter(|path| path.is_file());
    let vsock_helper = search::program(name.as_ref()).or(near);
    Ok(Tools { qemu, vsock_helper, penstock })
}

/// Returns a folder beside that of the executable: in the repository, `target/NAME`.
fn beside(name: &str) -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.parent()?.join(name))
}

/// Makes the guest's files, and describes the guest.
fn machine(
    args: &VmRunArgs,
    link: &Link,
    directory: &PrivateDirectory,
) -> Result<Machine, Failure> {
    let scratch = directory.path().join("kernel");
    let image = if args.image.as_os_str() == AUTO {
        kernel::find(beside("guest").as_slice())?
    } else {
        args.image.clone()
    };
    let kernel = Kernel::open(&image, &scratch)?;
    let mut files = root::fill(args, link).map_err(set_up)?;
    files.add_modules(&kernel.modules.in_order(&link.modules)?);
    let initramfs = directory.path().join("initramfs");
    files.write(&initramfs)?;
    // The kernel has the archive in memory while it unpacks it.
    let files_mib = 2 * files.content_bytes().div_ceil(1 << 20);
    let memory_mib = args.memory.unwrap_or(MEMORY_MIB + files_mib);
    if memory_mib < MEMORY_MIB_MIN + files_mib {
        let least = MEMORY_MIB_MIN + files_mib;
        return Err(set_up(Failure::Argument {
            argument: format!("--memory {memory_mib}"),
            reason: format!("with these files, the guest needs at least {least} MiB"),
        }));
    }
    Ok(Machine {
        name: "penstock".to_owned(),
        accelerator: Accelerator::Tcg,
        cpus: args.cpus,
        memory_mib,
        boot: Boot { kernel: kernel.path, initramfs, command_line: command_line(args) },
        vsock: link.vsock.clone(),
        memory: link.memory.as_ref().map(Memory::of_machine),
        network: link.network,
        port: directory.path().join("run.sock"),
    })
}

/// Returns the words for the guest's kernel. A panic ends QEMU: it does not start the guest anew.
/// The kernel must not check its timer: it panics if no interrupt of the timer comes within some
/// milliseconds, and on a busy host an emulated guest does not run for that long.
fn command_line(args: &VmRunArgs) -> String {
    let loud = if args.verbose { "" } else { " quiet" };
    let init = root::INIT;
    let word = penstock_vm::guest::WORD;
    format!("console=ttyS0{loud} panic=-1 no_timer_check rdinit={init} -- {word}")
}

/// A guest that has run.
struct Ran {
    report: Report,
    accelerator: Accelerator,
}

/// Runs the guest with KVM, or emulated if KVM does not work.
fn run_machine(
    args: &VmRunArgs,
    machine: Machine,
    tools: &Tools,
    link: &Link,
    directory: &PrivateDirectory,
) -> Result<Ran, Failure> {
    let mut plan = Plan {
        machine,
        tools,
        vsock_path: link::monitor_path(directory),
        program_max: args.timeout.map(Duration::from_secs),
        shows_console: args.verbose,
        announcement: format!("penstock: the guest runs with KVM; it uses {}", link.name),
    };
    let mut why = "as --no-kvm says".to_owned();
    if !args.no_kvm {
        why = match with_kvm(args, &mut plan)? {
            Attempt::Done(report) => return Ok(Ran { report, accelerator: Accelerator::Kvm }),
            Attempt::Without(why) => why,
        };
    }
    plan.announcement = format!("penstock: the guest is emulated, {why}; it uses {}", link.name);
    plan.machine.accelerator = Accelerator::Tcg;
    let report = host::run(&plan).map_err(|stopped| stopped.error)?;
    Ok(Ran { report, accelerator: Accelerator::Tcg })
}

/// What became of an attempt with KVM.
enum Attempt {
    Done(Report),
    /// KVM does not work, for this reason.
    Without(String),
}

fn with_kvm(args: &VmRunArgs, plan: &mut Plan<'_>) -> Result<Attempt, Failure> {
    if !link::may_use(KVM) {
        let why = format!("because this user cannot use {KVM}");
        return if args.kvm {
            Err(set_up(Failure::Argument { argument: "--kvm".into(), reason: why }))
        } else {
            Ok(Attempt::Without(why))
        };
    }
    plan.machine.accelerator = Accelerator::Kvm;
    match host::run(plan) {
        Ok(report) => Ok(Attempt::Done(report)),
        Err(Stopped { error, had_started }) if had_started || args.kvm => Err(error.into()),
        Err(Stopped { .. }) => {
            Ok(Attempt::Without("because no guest starts with KVM on this host".to_owned()))
        }
    }
}

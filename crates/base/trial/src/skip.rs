//! Tests that cannot check on this host all that they should.
//!
//! A test is passed, failed or skipped. Rust's test harness does not know the third state, so a
//! test that lacks something calls [`skip`]. `tools/cargo-tests.py` counts such a test as skipped.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::process::Command;
use std::thread;

/// Variable with the needs that the host must fulfil, by name and separated by commas.
const REQUIRED: &str = "PENSTOCK_TEST_REQUIRE";

/// Variable with the file that lists the skipped tests: test, need and reason, separated by tabs.
const LIST: &str = "PENSTOCK_TEST_SKIPS";

/// What a test needs from its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A C compiler and its linker.
    Compiler,
    /// An OpenCL platform with a device.
    OpenCl,
    /// Intel's OpenCL runtime for CPUs.
    Intel,
    /// An optional ability of the device or of its driver.
    Ability,
    /// nvcc, NVRTC and the headers of CUDA 13, in `.venv-cuda`.
    CudaToolkit,
    /// The headers of CUDA 12, which are not installed beside those of CUDA 13.
    Cuda12Headers,
    /// Open MPI with its compiler.
    Mpi,
    /// The programs of `tests/programs`.
    Programs,
    /// UCX and its headers.
    Ucx,
    /// Two processor cores.
    Cores,
    /// A clock that kernels and host share.
    Clock,
    /// Perf events that this user may open.
    Perf,
    /// Name spaces of networks that this user may make.
    NetworkNamespaces,
    /// Name spaces of processes that this user may make.
    ProcessNamespaces,
    /// Graphviz.
    Graphviz,
    /// A folder of programs without the shims of libWater for MPI.
    NoShims,
    /// The rights of the system's administrator.
    Root,
    /// vsock within one machine: the module `vsock_loopback`.
    Vsock,
    /// bubblewrap, which runs programs in containers.
    Bubblewrap,
    /// QEMU and a kernel for guests.
    Guest,
    /// The program `openssl`.
    OpenSsl,
    /// A process whose addresses are not limited, and are where they usually are.
    Addresses,
}

impl Need {
    const ALL: [Self; 22] = [
        Self::Compiler,
        Self::OpenCl,
        Self::Intel,
        Self::Ability,
        Self::CudaToolkit,
        Self::Cuda12Headers,
        Self::Mpi,
        Self::Programs,
        Self::Ucx,
        Self::Cores,
        Self::Clock,
        Self::Perf,
        Self::NetworkNamespaces,
        Self::ProcessNamespaces,
        Self::Graphviz,
        Self::NoShims,
        Self::Root,
        Self::Vsock,
        Self::Bubblewrap,
        Self::Guest,
        Self::OpenSsl,
        Self::Addresses,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Compiler => "compiler",
            Self::OpenCl => "opencl",
            Self::Intel => "intel",
            Self::Ability => "ability",
            Self::CudaToolkit => "cuda-toolkit",
            Self::Cuda12Headers => "cuda-12-headers",
            Self::Mpi => "mpi",
            Self::Programs => "programs",
            Self::Ucx => "ucx",
            Self::Cores => "cores",
            Self::Clock => "clock",
            Self::Perf => "perf",
            Self::NetworkNamespaces => "network-namespaces",
            Self::ProcessNamespaces => "process-namespaces",
            Self::Graphviz => "graphviz",
            Self::NoShims => "no-shims",
            Self::Root => "root",
            Self::Vsock => "vsock",
            Self::Bubblewrap => "bubblewrap",
            Self::Guest => "guest",
            Self::OpenSsl => "openssl",
            Self::Addresses => "addresses",
        }
    }
}

/// Marks the running test as skipped, because `need` is missing for the reason `why`. The caller
/// leaves out what it cannot check.
///
/// # Panics
///
/// If `PENSTOCK_TEST_REQUIRE` names the need, or a need that does not exist.
#[track_caller]
pub fn skip(need: Need, why: impl Display) {
    assert!(!is_required(need), "{REQUIRED} names {}, and it is missing: {why}", need.name());
    eprintln!("SKIPPED: {}: {why}", need.name());
    let Some(list) = std::env::var_os(LIST) else { return };
    let thread = thread::current();
    let test = thread.name().unwrap_or("a thread without a name");
    let line = format!("{test}\t{}\t{why}", need.name()).replace('\n', " ") + "\n";
    let file = OpenOptions::new().append(true).create(true).open(list);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the list of skipped tests");
}

/// Returns whether a test fails that lacks `need`.
///
/// # Panics
///
/// If `PENSTOCK_TEST_REQUIRE` names a need that does not exist.
#[must_use]
#[track_caller]
pub fn is_required(need: Need) -> bool {
    let required = std::env::var(REQUIRED).unwrap_or_default();
    let names = || required.split(',').filter(|name| !name.is_empty());
    for name in names() {
        let is_known = Need::ALL.iter().any(|it| it.name() == name);
        assert!(is_known, "{REQUIRED}: no need is called {name}");
    }
    names().any(|name| name == need.name())
}

/// Runs a compiler. Returns false and skips the test if the compiler is not installed.
///
/// # Panics
///
/// If the compiler fails. Then the source is wrong, and no test may pass without it.
#[track_caller]
pub fn is_compiled(compiler: &mut Command, need: Need) -> bool {
    let name = compiler.get_program().to_string_lossy().into_owned();
    match compiler.output() {
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{name} failed: {said}");
            true
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skip(need, format_args!("{name} is not installed"));
            false
        }
        Err(error) => panic!("{name} does not start: {error}"),
    }
}

/// Returns the command of the host's C compiler.
#[must_use]
pub fn compiler() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set in the processes that the tests start.
    const INSIDE: &str = "PENSTOCK_TRIAL_INSIDE";

    /// Runs this test again in a process with these variables, in which it only does `act`. Returns
    /// what it printed and whether it passed. The process itself does not return.
    fn run(variables: &[(&str, &str)], act: fn()) -> (String, bool) {
        if std::env::var_os(INSIDE).is_some() {
            act();
            std::process::exit(0);
        }
        let thread = thread::current();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", thread.name().unwrap(), "--nocapture", "--test-threads=2"]);
        command.env_remove(REQUIRED).env_remove(LIST).env(INSIDE, "1");
        let done = command.envs(variables.iter().copied()).output().unwrap();
        let text = [done.stdout, done.stderr].concat();
        (String::from_utf8_lossy(&text).into_owned(), done.status.success())
    }

    fn lacks_a_device() {
        skip(Need::OpenCl, "no\ndevice");
        assert!(!is_compiled(&mut Command::new("/no/such/compiler"), Need::Compiler));
    }

    #[test]
    fn a_skipped_test_is_listed() {
        let list = std::env::temp_dir().join(format!("penstock-skips-{}", std::process::id()));
        let (printed, passed) = run(&[(LIST, list.to_str().unwrap())], lacks_a_device);
        let listed = std::fs::read_to_string(&list).unwrap();
        std::fs::remove_file(list).unwrap();
        assert!(passed, "{printed}");
        assert!(printed.contains("SKIPPED: opencl: no\ndevice\n"), "{printed}");
        let test = "skip::tests::a_skipped_test_is_listed";
        let missing = "/no/such/compiler is not installed";
        assert_eq!(listed, format!("{test}\topencl\tno device\n{test}\tcompiler\t{missing}\n"));
    }

    #[test]
    fn without_a_list_a_skipped_test_only_prints_why() {
        let (printed, passed) = run(&[], lacks_a_device);
        assert!(passed && printed.contains("SKIPPED: opencl"), "{printed}");
    }

    #[test]
    fn a_required_need_that_is_missing_fails_the_test() {
        for required in ["opencl", "intel,opencl", "compiler,"] {
            let (printed, passed) = run(&[(REQUIRED, required)], lacks_a_device);
            assert!(!passed && printed.contains("and it is missing"), "{required}: {printed}");
        }
        let (printed, passed) = run(&[(REQUIRED, "intel")], lacks_a_device);
        assert!(passed, "{printed}");
    }

    #[test]
    fn a_need_that_does_not_exist_fails_the_test() {
        let (printed, passed) = run(&[(REQUIRED, "intel,openc1")], lacks_a_device);
        assert!(!passed && printed.contains("no need is called openc1"), "{printed}");
    }

    #[test]
    fn a_source_that_does_not_compile_fails_the_test() {
        let (printed, passed) =
            run(&[], || _ = is_compiled(Command::new("false").arg("source.c"), Need::Compiler));
        assert!(!passed && printed.contains("false failed"), "{printed}");
    }
}

//! Why a program was not built although its compiler has said nothing, in the words of a build log.

use penstock_wire::Status;
use penstock_wire::describe::BuildReport;

use super::limits::BuildLimits;
use super::task::{Goal, Task};
use crate::sys::Exit;

/// Part of the memory limit that a compiler has reached if it most likely ended for lack of memory.
/// A table that grows by doubling fails at half of the limit, a smaller piece near the limit.
const NEAR_LIMIT: (u64, u64) = (1, 2);

/// Why a build did not come to an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The compiler took too long and was ended.
    TimedOut(Exit),
    /// The compiler ended its process.
    Crashed(Exit),
    /// There was no process for the compiler, for this reason.
    NoBuilder(String),
}

/// Where the compiler ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) node: String,
    pub(crate) device: String,
}

impl Failure {
    /// Returns the text for the build log: what happened, where, and what the reader can do.
    fn log(&self, place: &Place, limits: &BuildLimits) -> String {
        let Place { node, device } = place;
        let (seconds, most) = (limits.seconds_max, limits.bytes_max >> 20);
        let (what, remedy) = match self {
            Self::TimedOut(exit) => (
                format!(
                    "the compiler took longer than {seconds} s and was ended; it had {} MiB of \
                     memory, and may have {most} MiB",
                    exit.peak_bytes >> 20
                ),
                "make the program smaller, or ask the administrator of the node to raise \
                 PENSTOCK_BUILD_SECONDS for its daemon",
            ),
            Self::Crashed(exit) if is_near_limit(exit, limits) => (
                format!(
                    "the compiler took too much memory: it had {} MiB, may have {most} MiB, and \
                     ended with {}",
                    exit.peak_bytes >> 20,
                    ending(exit)
                ),
                "make the program smaller, or ask the administrator of the node to raise \
                 PENSTOCK_BUILD_MIB for its daemon",
            ),
            Self::Crashed(exit) => (
                format!(
                    "the compiler crashed: it ended with {}, and had {} MiB of memory",
                    ending(exit),
                    exit.peak_bytes >> 20
                ),
                "this is a defect of the device's driver; change the program or its build \
                 options, or use another device",
            ),
            Self::NoBuilder(why) => (
                format!("no process for the compiler could be started: {why}"),
                "start the program again, or ask the administrator of the node, who can let \
                 programs build without limits with PENSTOCK_BUILD_SECONDS=0 for its daemon",
            ),
        };
        format!(
            "Penstock: {what} (node {node}, device {device}). The program is not built, and the \
             session goes on. What you can do: {remedy}."
        )
    }

    /// Returns the report on a build that failed so.
    pub(crate) fn report(
        &self,
        task: &Task,
        devices: &[u32],
        place: &Place,
        limits: &BuildLimits,
    ) -> BuildReport {
        let (status, options) = match &task.goal {
            Goal::Build(making) => (Status::BUILD_PROGRAM_FAILURE, &making.options),
            Goal::Compile(making) => (Status::COMPILE_PROGRAM_FAILURE, &making.options),
            Goal::Link { options, .. } => (Status::LINK_PROGRAM_FAILURE, options),
        };
        let log = self.log(place, limits);
        BuildReport::failure(status, devices, options.as_deref(), &log)
    }
}

fn is_near_limit(exit: &Exit, limits: &BuildLimits) -> bool {
    let (part, of) = NEAR_LIMIT;
    exit.peak_bytes >= limits.bytes_max / of * part
}

fn ending(exit: &Exit) -> String {
    match (exit.signal, exit.code) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit status {code}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use penstock_cl_sys::CL_PROGRAM_BUILD_OPTIONS;

    use super::*;
    use crate::builder::task::{Making, Origin};

    const LIMITS: BuildLimits = BuildLimits { seconds_max: 7, bytes_max: 1 << 30 };

    fn place() -> Place {
        Place { node: "gpu01".into(), device: "pthread".into() }
    }

    #[test]
    fn each_log_says_what_where_and_what_to_do() {
        let exit = |signal, peak_bytes| Exit { code: None, signal: Some(signal), peak_bytes };
        let crash = |signal, peak_bytes| Failure::Crashed(exit(signal, peak_bytes));
        for (failure, words) in [
            (Failure::TimedOut(exit(9, 0)), ["longer than 7 s", "PENSTOCK_BUILD_SECONDS"]),
            (crash(6, 1 << 29), ["512 MiB, may have 1024 MiB", "PENSTOCK_BUILD_MIB"]),
            (crash(11, 1 << 20), ["signal 11", "defect of the device's driver"]),
            (Failure::NoBuilder("no room".into()), ["no room", "start the program again"]),
        ] {
            let log = failure.log(&place(), &LIMITS);
            for word in words.iter().chain(&["node gpu01", "device pthread", "session goes on"]) {
                assert!(log.contains(word), "{log} lacks {word}");
            }
        }
    }

    #[test]
    fn a_report_has_the_code_of_its_call_and_the_clients_options() {
        let origin = Origin::Source(Vec::new());
        let making = Making { origin, options: Some("-DX".into()), headers: Vec::new() };
        let link = Goal::Link { options: Some("-DX".into()), inputs: Vec::new() };
        for (goal, status) in [
            (Goal::Build(making.clone()), Status::BUILD_PROGRAM_FAILURE),
            (Goal::Compile(making), Status::COMPILE_PROGRAM_FAILURE),
            (link, Status::LINK_PROGRAM_FAILURE),
        ] {
            let task = Task { devices: vec![0], goal };
            let report =
                Failure::NoBuilder("no room".into()).report(&task, &[3, 4], &place(), &LIMITS);
            assert_eq!(report.status, status.0);
            assert_eq!(report.devices.iter().map(|it| it.0).collect::<Vec<_>>(), [3, 4]);
            for (_, info) in &report.devices {
                assert!(info.contains(&(CL_PROGRAM_BUILD_OPTIONS, b"-DX\0".to_vec())));
            }
        }
    }
}

//! Records a run: starts its recorder, and writes its files at the end.

use std::path::Path;

use super::Runtime;
use crate::error::Error;
use crate::record::watch::Watchdog;
use crate::record::{Recorder, Settings, output};

/// Longest wait for the reports of jobs whose commands have ended, in ns. Reports of a lost rank
/// never come.
const REPORTS_NS_MAX: u64 = 500_000_000;

/// Starts to record this run if the settings ask for anything.
pub fn begin(runtime: &Runtime, settings: Settings) {
    if !settings.record && settings.watchdog_ns.is_none() {
        return;
    }
    let ranks = runtime.ranks();
    let watchdog_ns = settings.watchdog_ns;
    runtime.with_root(|root| root.set_recorder(Recorder::new(settings, &ranks)));
    if let Some(period_ns) = watchdog_ns {
        runtime.set_watchdog(Watchdog::new(period_ns, Box::new(|report| eprint!("{report}"))));
    }
}

/// Waits a short time until all jobs are reported. The job at the other end of a transfer may be
/// reported after the command has ended.
pub fn wait_for_reports(runtime: &Runtime) {
    let are_reported =
        |recorder: &Recorder| recorder.jobs().values().all(|job| job.outcome.is_some());
    runtime.wait_until(|root| root.recorder().is_none_or(are_reported), REPORTS_NS_MAX);
}

/// Writes all files that the settings ask for. A failure is only printed, because the run itself is
/// done.
pub fn finish(runtime: &Runtime) {
    wait_for_reports(runtime);
    if let Some(Err(error)) = copied(runtime).map(|recorder| output::write_all(&recorder)) {
        eprintln!("libwater: {error}");
    }
}

/// Returns a copy of the recorder. Writing takes long, and the scheduler must go on meanwhile.
fn copied(runtime: &Runtime) -> Option<Recorder> {
    runtime.with_root(|root| root.recorder().cloned()).flatten()
}

/// Writes the graphs of the run so far.
///
/// # Errors
/// Nothing is recorded, or a file cannot be written.
pub fn dump(runtime: &Runtime, path: &Path) -> Result<(), Error> {
    runtime.flush();
    let recorder = copied(runtime).filter(|recorder| recorder.settings().record).ok_or(Error::State(
        "nothing is recorded in this run: set WTR_RECORD=1 (or WTR_GRAPH, to have it written at \
         the end) before it begins",
    ))?;
    output::write_graphs(&recorder, path)
}

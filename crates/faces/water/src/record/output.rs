//! Writes what was recorded to files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::settings::TO_STDERR;
use super::{Recorder, dot, summary, trace};
use crate::error::Error;

/// Writes the graph of the commands to `path`, and that of the jobs to [`after`] of it.
///
/// # Errors
/// A file cannot be written.
pub fn write_graphs(recorder: &Recorder, path: &Path) -> Result<(), Error> {
    write_file(path, |file| dot::commands(recorder, file))?;
    write_file(&after(path), |file| dot::jobs(recorder, file))
}

/// Writes all files that the settings ask for.
///
/// # Errors
/// A file cannot be written.
pub fn write_all(recorder: &Recorder) -> Result<(), Error> {
    if let Some(path) = &recorder.settings().graph {
        write_graphs(recorder, path)?;
    }
    if let Some(path) = &recorder.settings().trace {
        write_file(path, |file| trace::write(recorder, file))?;
    }
    match recorder.settings().summary.as_deref() {
        None => Ok(()),
        Some(path) if path == Path::new(TO_STDERR) => {
            eprint!("{}", summary::text(recorder));
            Ok(())
        }
        Some(path) => write_file(path, |file| file.write_all(summary::text(recorder).as_bytes())),
    }
}

/// Returns the path of the graph after replacement: `x.after.dot` for `x.dot`.
pub fn after(path: &Path) -> PathBuf {
    path.with_extension("after.dot")
}

fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<(), Error> {
    let written = File::create(path).map(BufWriter::new).and_then(|mut file| {
        write(&mut file)?;
        file.flush()
    });
    written.map_err(|reason| Error::Invalid(format!("cannot write {}: {reason}", path.display())))
}

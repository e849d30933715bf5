//! Programs that are built and installed beside this one.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use penstock_process::{signals, variable};

use crate::failure::Failure;

/// Finds the program `name`.
pub fn find(name: &'static str) -> Result<PathBuf, Failure> {
    let looked = match variable::PROGRAMS.path() {
        Some(directory) => vec![directory.join(name)],
        None => candidates(std::env::current_exe().ok().as_deref().and_then(Path::parent), name),
    };
    match looked.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(Failure::Missing {
            what: name,
            looked,
            remedy: "build it with `make`, or let the variable PENSTOCK_PROGRAMS name its directory",
        }),
    }
}

/// Beside the executable, where packages install programs, and where `make` in the repository puts
/// them.
fn candidates(bin: Option<&Path>, name: &str) -> Vec<PathBuf> {
    let Some(bin) = bin else { return Vec::new() };
    let mut looked = vec![bin.join(name)];
    if let Some(above) = bin.parent() {
        looked.push(above.join("lib/penstock").join(name));
        looked.push(above.join("programs").join(name));
    }
    looked
}

/// Runs `command` and waits for its end. The failure calls the program `what`.
pub fn finish(command: &mut Command, what: &str) -> Result<(), Failure> {
    let program = PathBuf::from(command.get_program());
    let status = signals::hand_on(command)
        .status()
        .map_err(|source| Failure::Execute { program, source })?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::Program { what: what.to_owned(), how: how(status) })
    }
}

fn how(status: ExitStatus) -> String {
    status.to_string()
}

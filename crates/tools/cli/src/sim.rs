//! `penstock sim`: runs a libWater program on a simulated cluster, under SimGrid's SMPI.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use penstock_client::config::Surroundings;
use penstock_process::{search, signals};

use crate::args::SimArgs;
use crate::failure::Failure;
use crate::run::{PrivateDirectory, guard};

/// SimGrid's command that runs programs under SMPI.
const SMPIRUN: &str = "smpirun";
/// What to do if SMPI is missing. `smpicc` of the same package builds the programs.
const REMEDY: &str = "install the Debian package libsimgrid-dev (SimGrid 3.32 or later, with SMPI)";

/// Clusters of 1024 nodes, by name.
const PLATFORMS: [(&str, &str); 2] = [
    ("gbe", include_str!("../../../../tools/sim/platforms/gbe.xml")),
    ("ib-qdr", include_str!("../../../../tools/sim/platforms/ib-qdr.xml")),
];
/// Models of the nodes' devices, by name.
const MODELS: [(&str, &str); 1] =
    [("vsc2", include_str!("../../../../tools/sim/models/vsc2.json"))];
/// Options of SMPI for every run. The file gives the reasons for each.
const OPTIONS: &str = include_str!("../../../../tools/sim/smpi.options");

/// Runs the program in the simulated cluster.
pub fn sim(args: &SimArgs) -> Result<ExitCode, Failure> {
    let smpirun = search::program(SMPIRUN.as_ref())
        .ok_or_else(|| missing(search::places(SMPIRUN.as_ref())))?;
    let program = program(&args.program)?;
    let directory = PrivateDirectory::create(&Surroundings::of_process())?;
    // The guard removes the directory, also if this process is interrupted.
    guard::start(&directory, false)?;
    let platform = file(&directory, &args.platform, "platform", "xml", &PLATFORMS)?;
    let model = file(&directory, &args.model, "model", "json", &MODELS)?;
    let mut command = Command::new(&smpirun);
    command
        .arg("-np")
        .arg(args.nodes.to_string())
        .arg("-platform")
        .arg(platform)
        .args(options(OPTIONS));
    if !args.verbose {
        command.arg("--log=root.thresh:warning");
    }
    command.args(args.option.iter().map(|option| format!("--cfg={option}")));
    command.arg(program).args(args.program.iter().skip(1)).env("WTR_SIM", model);
    if let Some(dcr) = &args.dcr {
        command.env("WTR_DCR", dcr);
    }
    let status = signals::hand_on(&mut command)
        .status()
        .map_err(|source| Failure::Execute { program: smpirun, source })?;
    // A program that a signal ended has no code.
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Returns the path of the program. SMPI opens it as a library and does not search PATH.
fn program(words: &[std::ffi::OsString]) -> Result<PathBuf, Failure> {
    let name = words.first().cloned().unwrap_or_default();
    let path = search::program(&name).unwrap_or_else(|| PathBuf::from(&name));
    std::fs::canonicalize(&path).map_err(|source| Failure::Execute { program: path, source })
}

/// Returns the path of a file: a known name is written to the directory, and any other name is a
/// path.
fn file(
    directory: &PrivateDirectory,
    name: &str,
    what: &'static str,
    extension: &str,
    known: &[(&str, &str)],
) -> Result<PathBuf, Failure> {
    if let Some((name, text)) = known.iter().find(|(known, _)| *known == name) {
        let file = format!("{name}.{extension}");
        directory.write(&file, text)?;
        return Ok(directory.path().join(file));
    }
    std::fs::canonicalize(name).map_err(|source| {
        let names = known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        Failure::Argument {
            argument: format!("--{what} {name}"),
            reason: format!(
                "it is neither one that comes with Penstock ({names}) nor a file: {source}"
            ),
        }
    })
}

/// Returns the options in the file as arguments.
fn options(text: &str) -> impl Iterator<Item = String> {
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| format!("--cfg={line}"))
}

fn missing(looked: Vec<PathBuf>) -> Failure {
    Failure::Missing { what: SMPIRUN, looked, remedy: REMEDY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_settings_and_not_their_reasons() {
        let options: Vec<_> = options(OPTIONS).collect();
        assert!(options.len() > 5, "{options:?}");
        assert!(
            options.iter().all(|option| option.starts_with("--cfg=") && option.contains(':')),
            "{options:?}"
        );
        assert!(options.contains(&"--cfg=smpi/simulate-computation:no".to_owned()));
    }

    #[test]
    fn without_smpirun_the_message_says_what_to_install() {
        let failure = missing(vec!["/nonexistent/smpirun".into()]).to_string();
        assert!(
            failure.contains("libsimgrid-dev") && failure.contains("/nonexistent"),
            "{failure}"
        );
    }

    #[test]
    fn a_platform_that_is_neither_known_nor_a_file_is_refused_with_the_known_names() {
        let directory = PrivateDirectory::create(&Surroundings::of_process()).unwrap();
        let failure =
            file(&directory, "nowhere", "platform", "xml", &PLATFORMS).unwrap_err().to_string();
        assert!(failure.contains("gbe, ib-qdr"), "{failure}");
        let gbe = file(&directory, "gbe", "platform", "xml", &PLATFORMS).unwrap();
        assert!(std::fs::read_to_string(gbe).unwrap().contains("125MBps"));
        directory.remove();
    }
}

//! `penstock doctor`: what is wrong with this host.

pub mod answers;
pub mod args;
mod show;

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use penstock_doctor::check::{all, cause_of_no_device};
use penstock_doctor::collect::collect;
use penstock_doctor::{Facts, Finding, Severity, Tree, examine};
use serde_json::json;

use crate::failure::Failure;
use crate::table;
use answers::Ask;
use args::DoctorArgs;

/// Version of the JSON. It rises if a field changes its meaning or goes away.
const FORMAT: u32 = 1;

/// Examines this host or a copy of another one, or writes a copy.
pub fn doctor(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let tree = match &args.root {
        Some(root) => Tree::open(root)?,
        None => Tree::of_host(answers::of_host(Ask::Nodes))?,
    };
    if let Some(target) = &args.collect {
        return write_copy(tree, target);
    }
    report(&examine(&Facts::read(&tree)), all().count(), args.json)
}

/// Prints the findings of a number of checks. Returns the exit status of the worst finding.
pub fn report(findings: &[Finding], checks: usize, json: bool) -> Result<ExitCode, Failure> {
    if json {
        table::print(&format!("{:#}\n", as_json(findings, checks)))?;
    } else {
        table::print(&show::text(findings, checks, table::terminal_width()))?;
    }
    let worst = findings.iter().map(|finding| finding.severity).max();
    Ok(ExitCode::from(worst.map_or(0, Severity::exit_status)))
}

fn as_json(findings: &[Finding], checks: usize) -> serde_json::Value {
    let count = |severity| findings.iter().filter(|it| it.severity == severity).count();
    json!({
        "format": FORMAT,
        "checks": checks,
        "errors": count(Severity::Error),
        "warnings": count(Severity::Warning),
        "notes": count(Severity::Note),
        "findings": findings,
    })
}

fn write_copy(tree: Tree, target: &Path) -> Result<ExitCode, Failure> {
    let copy = collect(tree, &answers::secrets()).tree;
    let is_directory = target.is_dir() || target.as_os_str().as_encoded_bytes().ends_with(b"/");
    let written = if is_directory { copy.write_into(target) } else { write_new(target, &copy) };
    written.map_err(|source| Failure::Collect { path: target.to_owned(), source })?;
    let path = target.display();
    table::print(&format!(
        "{path}: a copy of what the checks read, without names and addresses.\n\
         Read it before you send it. It is examined with: penstock doctor --root {path}\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a file that must not exist.
fn write_new(path: &Path, copy: &penstock_doctor::tree::Listing) -> io::Result<()> {
    let mut file = fs::File::create_new(path)?;
    io::Write::write_all(&mut file, copy.to_string().as_bytes())
}

/// Says on standard error why probably no device appears.
pub fn hint() {
    let Ok(tree) = Tree::of_host(answers::of_host(Ask::Nobody)) else { return };
    let findings = examine(&Facts::read(&tree));
    match cause_of_no_device(&findings) {
        Some(cause) => eprintln!(
            "penstock: the most likely cause on this host: {}; run `penstock doctor`",
            cause.seen
        ),
        None => eprintln!("penstock: run `penstock doctor` for what may be wrong with this host"),
    }
}

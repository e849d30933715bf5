//! `penstock vm check`: what is wrong with a libvirt domain on this host.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::ExitCode;

use penstock_doctor::check::all;
use penstock_doctor::facts::Domain;
use penstock_doctor::limits::FILE_BYTES_MAX;
use penstock_doctor::{Topic, examine};

use super::args::VmCheckArgs;
use super::define::facts;
use crate::doctor::report;
use crate::failure::Failure;

/// Name of standard input.
const INPUT: &str = "-";

/// Checks the domain with those checks of the doctor that are about domains.
pub fn check(args: &VmCheckArgs) -> Result<ExitCode, Failure> {
    let domain = read(&args.file)?;
    let mut facts = facts(args.root.as_deref())?;
    facts.domains = vec![domain];
    let mut findings = examine(&facts);
    findings.retain(|finding| finding.topic == Topic::Domains);
    let checks = all().filter(|check| check.topic == Topic::Domains).count();
    report(&findings, checks, args.json)
}

fn read(path: &Path) -> Result<Domain, Failure> {
    let wrong = |reason: &str| Failure::Argument {
        argument: path.display().to_string(),
        reason: reason.to_owned(),
    };
    let mut bytes = Vec::new();
    let most = FILE_BYTES_MAX as u64 + 1;
    let read = if path.as_os_str() == INPUT {
        io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    read.map_err(Failure::file(path, "read"))?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(wrong("it is too long for a domain (FILE_BYTES_MAX)"));
    }
    let name = if path.as_os_str() == INPUT { Path::new("domain.xml") } else { path };
    Domain::of_xml(&name.to_string_lossy(), &String::from_utf8_lossy(&bytes))
        .ok_or_else(|| wrong("it is no libvirt domain; `virsh dumpxml NAME` writes one"))
}

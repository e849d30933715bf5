//! The command line of `penstock doctor`.

use std::path::PathBuf;

use clap::Args;

/// Text behind the options in the help.
const AFTER: &str = "\
Examples:
  penstock doctor
  penstock doctor --json | jq '.findings[] | select(.severity == \"error\")'
  penstock doctor --collect /tmp/gpu07.tree
  penstock doctor --root /tmp/gpu07.tree

Findings:
The command only reads files, and asks the nodes of the pool for their status. It changes \
nothing. Each finding says what was seen, why that matters, and what repairs it. An error means \
that devices are missing or that programs fail. A warning means that something costs speed, or \
that a feature does not work. A note is a property to know about. docs/doctor.md lists all \
checks.

Copies:
--collect writes what the checks read on this host, so that somebody else can run the checks \
with --root. The copy contains no key, no serial number, no name of a host or user, and no \
address of a network; it is a text that you can read before you send it. If the path is that of \
an existing directory or ends with `/`, the copy is a directory, otherwise a file. --root also \
reads a directory into which somebody has copied files such as /sys and /etc.

Exit status:
0 if there are no findings or only notes; 1 if the worst finding is a warning; 2 if it is an \
error, or if the command line is wrong; 125 if the command could not look.";

#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct DoctorArgs {
    /// Write the findings as JSON
    #[arg(long)]
    pub json: bool,
    /// Examine a copy of another host's files instead of this host
    #[arg(long, value_name = "PATH")]
    pub root: Option<PathBuf>,
    /// Write a copy for --root, without what identifies the host or its users, and examine nothing
    #[arg(long, value_name = "PATH", conflicts_with = "json")]
    pub collect: Option<PathBuf>,
}

//! The words of another program on our command line.

use std::ffi::{OsStr, OsString};

use clap::CommandFactory as _;

use crate::args::Cli;
use crate::failure::Failure;

/// Most single changes between a mistyped option and the one that was meant.
const CHANGES_MAX: usize = 2;

/// Returns the name of a program and its arguments, as they follow the options of the subcommand
/// `of`. Refuses a name that begins with a hyphen: it is an option that the subcommand does not
/// have, and everything behind it would be taken for arguments.
pub fn split<'a>(of: &str, words: &'a [OsString]) -> Result<(&'a OsStr, &'a [OsString]), Failure> {
    let Some((program, arguments)) = words.split_first() else {
        let reason = "name the program to run".to_owned();
        return Err(Failure::Argument { argument: "PROGRAM".to_owned(), reason });
    };
    let name = program.to_string_lossy();
    if !name.starts_with('-') {
        return Ok((program, arguments));
    }
    let meant = nearest(of, &name).map_or_else(
        || format!("see penstock {of} --help"),
        |option| format!("is {option} meant?"),
    );
    Err(Failure::Argument {
        reason: format!(
            "penstock {of} has no such option; {meant} (a program of this name: ./{name})"
        ),
        argument: name.into_owned(),
    })
}

/// Returns the option of the subcommand that is spelt most like `name`.
fn nearest(of: &str, name: &str) -> Option<String> {
    let cli = Cli::command();
    let options = cli.find_subcommand(of)?.get_arguments().filter_map(clap::Arg::get_long);
    let name = name.split('=').next().unwrap_or_default();
    let distances = options.map(|option| format!("--{option}"));
    let distances = distances.map(|option| (strsim::osa_distance(name, &option), option));
    distances.min().filter(|(distance, _)| *distance <= CHANGES_MAX).map(|(_, option)| option)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(words: &[&str]) -> String {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        split("run", &words).unwrap_err().to_string()
    }

    #[test]
    fn a_mistyped_option_is_no_program() {
        let said = refused(&["--node", "x", "--", "true"]);
        assert!(said.starts_with("--node: penstock run has no such option; is --nodes meant?"));
        assert!(refused(&["--node=x", "true"]).contains("is --nodes meant?"));
        assert!(refused(&["--quux", "true"]).contains("see penstock run --help"));
        assert!(refused(&[]).starts_with("PROGRAM: name the program"));
    }

    #[test]
    fn options_of_the_program_are_its_own() {
        let words: Vec<OsString> = ["./it", "--node", "x"].map(OsString::from).into();
        assert_eq!(split("run", &words).unwrap(), (OsStr::new("./it"), &words[1..]));
    }
}

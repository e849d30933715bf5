//! `penstock config`: the environment variables that Penstock reads, and what is wrong with them.

use std::process::ExitCode;

use penstock_client::config::Config;
use penstock_process::log::Filter;
use penstock_process::{notice, variable};

use crate::failure::{Failure, USAGE};
use crate::table::{self, Table};

/// Prints the variables, and a line on standard error for each value that cannot be read.
pub fn config() -> Result<ExitCode, Failure> {
    let mut list = Table::new(&["VARIABLE", "MEANING", "DEFAULT", "VALUE"]);
    for variable in variable::ALL {
        let value = variable.value().map(|value| value.display().to_string());
        let plain = |text: &str| text.replace('`', "");
        list.row(vec![
            variable.name.to_owned(),
            plain(variable.about),
            plain(variable.default),
            value.unwrap_or_default(),
        ]);
    }
    table::print(&list.render(table::terminal_width()))?;
    let problems = problems();
    for problem in &problems {
        notice::print(format_args!("{problem}"));
    }
    Ok(ExitCode::from(if problems.is_empty() { 0 } else { USAGE }))
}

fn problems() -> Vec<String> {
    let set = |variable: &variable::Variable| Some((*variable, variable.value()?));
    let wrong = variable::ALL
        .iter()
        .filter_map(set)
        .filter_map(|(variable, value)| variable.check(&value).err())
        .map(|error| error.to_string());
    let log = variable::LOG.text().and_then(|text| Filter::parse(&text).err());
    let config = Config::load().err().map(|error| error.to_string());
    let unknown = variable::unknown().into_iter().map(|name| match similar(&name) {
        Some(known) => {
            format!("variable {name}: Penstock reads none of this name; did you mean {known}?")
        }
        None => format!("variable {name}: Penstock reads none of this name"),
    });
    let mut problems: Vec<String> =
        wrong.chain(log.map(|error| error.to_string())).chain(config).chain(unknown).collect();
    // The pool's configuration reports the same variable in its own words.
    let mut seen = std::collections::BTreeSet::new();
    problems
        .retain(|problem| seen.insert(problem.split(": ").next().unwrap_or_default().to_owned()));
    problems
}

/// Returns the variable that was probably meant.
fn similar(name: &str) -> Option<&'static str> {
    let distances = variable::ALL.iter().map(|it| (strsim::osa_distance(name, it.name), it.name));
    // A slip of the hand changes one or two letters.
    distances.filter(|(distance, _)| *distance <= 2).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_slip_leads_to_the_variable() {
        let similar = |rest: &str| similar(&format!("PENSTOCK_{rest}"));
        assert_eq!(similar("NODE"), Some(variable::NODES.name));
        assert_eq!(similar("DEVCIES"), Some(variable::DEVICES.name));
        assert_eq!(similar("COLOUR"), None);
    }
}

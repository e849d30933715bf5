//! Man pages and completions for packages, generated from the definition of the command line.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Command, CommandFactory as _};
use clap_mangen::roff::{Roff, roman};

use crate::args::Cli;
use crate::failure::Failure;
use crate::table;

#[derive(Args, Debug)]
pub struct ManArgs {
    /// The directory, which must exist
    pub directory: std::path::PathBuf,
}

/// Writes `penstock.1` and a page for each of its commands into `directory`.
pub fn man(directory: &Path) -> Result<ExitCode, Failure> {
    for (name, page) in pages() {
        let path = directory.join(name);
        fs::write(&path, page).map_err(Failure::file(&path, "write"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the completions for `shell` to standard output.
pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut visible(), "penstock", &mut text);
    table::print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the command line without its hidden commands.
fn visible() -> Command {
    let whole = Cli::command();
    let shown: Vec<Command> =
        whole.get_subcommands().filter(|it| !it.is_hide_set()).cloned().collect();
    // The pages need no page for `help`.
    let mut command =
        Command::new("penstock").version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true);
    if let Some(about) = whole.get_about() {
        command = command.about(about.clone());
    }
    if let Some(after) = whole.get_after_help() {
        command = command.after_help(after.clone());
    }
    command.subcommands(shown)
}

/// Returns the names and texts of the pages.
fn pages() -> Vec<(String, Vec<u8>)> {
    let mut root = visible();
    root.build();
    let mut pages = vec![("penstock.1".to_owned(), page(root.clone()))];
    let people = |command: &&Command| command.get_name() != "help";
    for command in root.get_subcommands().filter(people) {
        let name = format!("penstock-{}", command.get_name());
        pages.push((format!("{name}.1"), page(command.clone())));
        for inner in command.get_subcommands().filter(people) {
            pages.push((format!("{name}-{}.1", inner.get_name()), page(inner.clone())));
        }
    }
    pages
}

fn page(mut command: Command) -> Vec<u8> {
    let usage = command.render_usage().to_string();
    let sections = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_commands = command.has_subcommands();
    let man = clap_mangen::Man::new(command).source("Penstock").manual("Penstock");
    let mut text = Vec::new();
    // Writing to a vector cannot fail.
    _ = man.render_title(&mut text);
    _ = man.render_name_section(&mut text);
    let mut synopsis = Roff::new();
    synopsis.control("SH", ["SYNOPSIS"]).text([roman(usage.trim_start_matches("Usage: "))]);
    _ = synopsis.to_writer(&mut text);
    _ = man.render_description_section(&mut text);
    _ = man.render_options_section(&mut text);
    if has_commands {
        _ = man.render_subcommands_section(&mut text);
    }
    _ = extra(&sections).to_writer(&mut text);
    text
}

/// Converts the text behind the options in the help into sections. A section is a line `Title:`,
/// then paragraphs or indented lines.
fn extra(text: &str) -> Roff {
    let mut page = Roff::new();
    let mut example = false;
    for line in text.lines() {
        let indented = line.starts_with("  ");
        if indented != example {
            page.control(if indented { "nf" } else { "fi" }, []);
            example = indented;
        }
        if let Some(title) = line.strip_suffix(':').filter(|_| !indented) {
            page.control("SH", [title.to_uppercase().as_str()]);
        } else if line.is_empty() {
            page.control("PP", []);
        } else {
            page.text([roman(line.trim_start())]);
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
    }

    #[test]
    fn the_command_line_is_well_defined() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_pages_in_the_repository_are_those_of_this_program() {
        for (name, page) in pages() {
            let stored = fs::read(root().join("man").join(&name)).unwrap_or_default();
            assert!(stored == page, "man/{name} is old: run `penstock man man`");
        }
        for (name, shell) in [
            ("penstock.bash", clap_complete::Shell::Bash),
            ("_penstock", clap_complete::Shell::Zsh),
            ("penstock.fish", clap_complete::Shell::Fish),
        ] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut visible(), "penstock", &mut text);
            let stored = fs::read(root().join("completions").join(name)).unwrap_or_default();
            assert!(
                stored == text,
                "completions/{name} is old: run `penstock completions {shell} > completions/{name}`"
            );
        }
    }

    #[test]
    fn hidden_commands_are_not_in_the_pages() {
        assert!(pages().iter().all(|(name, _)| !name.contains("guard") && !name.contains("man")));
        assert!(pages().iter().any(|(name, _)| name == "penstock-run.1"));
    }

    const DOCUMENTS: [&str; 13] = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/README.md",
        "docs/configuration.md",
        "docs/cuda-programs.md",
        "docs/debugging.md",
        "docs/doctor.md",
        "docs/energy.md",
        "docs/ggas.md",
        "docs/libwater.md",
        "docs/opencl-programs.md",
        "docs/operation.md",
    ];

    /// In code, a command is the text behind `penstock `, up to the end of the line or to a second
    /// command.
    #[test]
    fn the_documents_name_only_commands_and_options_that_exist() {
        let command = Cli::command();
        let mut seen = 0;
        for name in DOCUMENTS {
            let text = fs::read_to_string(root().join(name)).unwrap();
            for line in code_of(&text).lines() {
                for words in line.split("penstock ").skip(1) {
                    check(
                        &command,
                        words.split(['|', '#', '&', ';', '`', ')']).next().unwrap_or_default(),
                        name,
                    );
                    seen += 1;
                }
            }
        }
        assert!(seen > 10, "only {seen} commands found: the search is broken");
    }

    /// Returns the text between back quotes, in lines and in blocks, and the indented lines.
    fn code_of(text: &str) -> String {
        let mut code = String::new();
        for (index, block) in text.split("```").enumerate() {
            if index % 2 == 1 {
                code.push_str(block);
                continue;
            }
            for line in block.lines() {
                let pieces: Vec<_> = match line.strip_prefix("    ") {
                    Some(line) => vec![line],
                    None => line.split('`').skip(1).step_by(2).collect(),
                };
                code.extend(pieces.into_iter().map(|piece| format!("{piece}\n")));
            }
        }
        code
    }

    fn check(root: &Command, text: &str, file: &str) {
        let mut words = text.split_whitespace();
        let Some(word) = words.next() else { return };
        if word.starts_with('-') {
            return;
        }
        let found = root.find_subcommand(word);
        let mut command =
            found.unwrap_or_else(|| panic!("{file}: `penstock {text}`: there is no such command"));
        let mut words = words.peekable();
        if let Some(inner) = words.peek().and_then(|word| command.find_subcommand(word)) {
            command = inner;
            words.next();
        }
        for word in words.take_while(|word| *word != "--") {
            if let Some(option) = word.trim_matches(['[', ']', '.', ',']).strip_prefix("--") {
                let name = option.split('=').next();
                let known = command
                    .get_arguments()
                    .any(|argument| argument.get_long() == name && !argument.is_hide_set());
                assert!(known, "{file}: `penstock {text}`: there is no option --{option}");
            }
        }
    }
}

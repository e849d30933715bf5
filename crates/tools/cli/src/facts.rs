//! Facts that several texts state: each in one sentence here, beside what the code does.
//!
//! A change of the code breaks the first test, and a text that says something else the second one.

use std::fs;
use std::path::Path;

use clap::CommandFactory as _;
use penstock_link::Rule;
use penstock_process::variable;

use crate::args::Cli;

struct Fact {
    is_true: fn() -> bool,
    sentence: &'static str,
    /// The texts that state it. `serve` is the help of `penstock serve`, and its man page.
    texts: &'static [&'static str],
}

const FACTS: [Fact; 2] = [
    Fact {
        is_true: || {
            Rule::default() == Rule::Remote
                && variable::ENCRYPTION.default.contains("else `remote`")
        },
        sentence: "TCP that leaves a host is encrypted unless PENSTOCK_ENCRYPTION is never.",
        texts: &["README.md", "SECURITY.md", "docs/operation.md", "man/penstockd.8", "serve"],
    },
    Fact {
        is_true: || variable::CONFINE.default == "`full`",
        sentence: "Workers confine themselves at the level full, as far as the kernel and the \
                   drivers permit.",
        texts: &["README.md", "SECURITY.md", "docs/operation.md", "man/penstockd.8", "serve"],
    },
];

/// Returns a text without marks of Markdown and without targets of links, on one line.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for (index, part) in text.split("](").enumerate() {
        let rest = if index == 0 { part } else { part.split_once(')').map_or("", |it| it.1) };
        plain.push_str(rest);
    }
    let words = plain.replace(['`', '*', '[', '\\'], "");
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn text(name: &str) -> String {
    if name == "serve" {
        let command = Cli::command();
        let serve = command.find_subcommand("serve").expect("there is `penstock serve`");
        return serve.get_after_help().map(ToString::to_string).unwrap_or_default();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_sentences_are_true() {
    for fact in FACTS {
        assert!((fact.is_true)(), "the code does otherwise: {}", fact.sentence);
    }
}

#[test]
fn every_text_has_the_sentences() {
    for fact in FACTS {
        for name in fact.texts {
            assert!(plain(&text(name)).contains(fact.sentence), "{name}: {}", fact.sentence);
        }
    }
}

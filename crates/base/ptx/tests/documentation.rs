//! Checks that docs/ptx.md matches the table of forms, from which it is generated. To regenerate
//! it: `PENSTOCK_WRITE_DOCS=1 cargo test -p penstock-ptx --test documentation`.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use penstock_ptx::forms;

const BEGINNING: &str = include_str!("documentation/beginning.md");

#[test]
fn the_table_of_instructions_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/ptx.md");
    let made = document();
    if std::env::var_os("PENSTOCK_WRITE_DOCS").is_some() {
        fs::write(&path, made).expect("docs is there");
        return;
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == made,
        "docs/ptx.md is not up to date: run this test with PENSTOCK_WRITE_DOCS=1"
    );
}

fn document() -> String {
    let mut text = String::from(BEGINNING);
    text.push_str("| word | one of |\n|---|---|\n");
    for name in classes() {
        let words = forms::class(name).expect("it is a class").replace('|', ", ");
        let number = if name == "HINT" { "any number of words that start with " } else { "" };
        writeln!(text, "| `{name}` | {number}{words} |").expect("a string");
    }
    text.push_str("\n| form | |\n|---|---|\n");
    for row in forms::table() {
        writeln!(text, "| `{}` | {} |", cell(&row.syntax()), cell(row.doc)).expect("a string");
    }
    text
}

fn classes() -> BTreeSet<&'static str> {
    forms::table()
        .flat_map(|row| row.suffixes.split(|letter: char| !letter.is_ascii_alphanumeric()))
        .filter(|word| {
            word.chars().all(|letter| !letter.is_ascii_lowercase()) && forms::class(word).is_some()
        })
        .collect()
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

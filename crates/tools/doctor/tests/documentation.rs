//! Checks that docs/doctor.md matches the table of checks, from which it is generated. To
//! regenerate it: `PENSTOCK_WRITE_DOCS=1 cargo test -p penstock-doctor --test documentation`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use penstock_doctor::{Topic, check};

const BEGINNING: &str = include_str!("documentation/beginning.md");

#[test]
fn the_table_of_checks_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/doctor.md");
    let made = document();
    if std::env::var_os("PENSTOCK_WRITE_DOCS").is_some() {
        fs::write(&path, made).unwrap();
        return;
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == made,
        "docs/doctor.md is not up to date: run this test with PENSTOCK_WRITE_DOCS=1"
    );
}

fn document() -> String {
    let mut text = String::from(BEGINNING);
    for topic in Topic::ALL {
        writeln!(text, "\n### {}\n\n| check | severity | finds | why it matters |", topic.title())
            .unwrap();
        text.push_str("|---|---|---|---|\n");
        for check in check::all().filter(|check| check.topic == topic) {
            let cells = [check.title, check.why].map(|cell| cell.replace('|', "\\|"));
            let [title, why] = cells;
            writeln!(text, "| `{}` | {} | {title} | {why} |", check.id, check.severity.name())
                .unwrap();
        }
    }
    text
}

#[test]
fn every_topic_has_checks() {
    for topic in Topic::ALL {
        assert!(check::all().any(|check| check.topic == topic), "{topic:?}");
    }
}

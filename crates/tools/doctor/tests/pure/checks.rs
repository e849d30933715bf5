//! Every check has a tree in which it fires and one in which it is silent.
//!
//! `trees/*.tree` are hosts without a defect. `trees/*.trees` change them: a line
//! `== CHECK fires on BASE` or `== CHECK silent on BASE`, and below it lines of
//! [`penstock_doctor::tree::Listing`]. A line `also CHECK` names a check that fires as well.

use std::collections::BTreeSet;
use std::fs;

use crate::common::{Folder, base, findings, trees};
use penstock_doctor::check;
use penstock_doctor::tree::{Listing, Tree};

/// A section of a file.
struct Case {
    check: String,
    fires: bool,
    also: Vec<String>,
    tree: Listing,
}

/// Names that stand for long paths.
const NAMES: [(&str, &str); 8] = [
    ("$GPU_PORT", "sys/devices/pci0000:64/0000:64:00.0/0000:65:00.0/0000:66:00.0"),
    ("$GPU", "sys/devices/pci0000:64/0000:64:00.0/0000:65:00.0/0000:66:00.0/0000:67:00.0"),
    ("$NIC", "sys/devices/pci0000:64/0000:64:00.0/0000:65:00.0/0000:66:01.0/0000:68:00.0"),
    ("$AMD", "sys/devices/pci0000:00/0000:00:01.0/0000:03:00.0"),
    ("$PPORT", "sys/devices/pci0000:10/0000:10:00.0"),
    ("$PGPU", "sys/devices/pci0000:10/0000:10:00.0/0000:11:00.0"),
    ("$PSOUND", "sys/devices/pci0000:10/0000:10:00.0/0000:11:00.1"),
    ("$PNIC", "sys/devices/pci0000:20/0000:20:00.0"),
];

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(trees()).unwrap().flatten() {
        if entry.path().extension().is_none_or(|extension| extension != "trees") {
            continue;
        }
        let mut text = fs::read_to_string(entry.path()).unwrap();
        for (name, path) in NAMES {
            text = text.replace(name, path);
        }
        for section in text.split("== ").skip(1) {
            let (head, body) = section.split_once('\n').unwrap();
            let [check, what, "on", name] = head.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{}: {head}", entry.path().display());
            };
            assert!(matches!(what, "fires" | "silent"), "{head}");
            let (also, lines): (Vec<&str>, Vec<&str>) =
                body.lines().partition(|line| line.starts_with("also "));
            let mut tree = base(name);
            tree.apply(&lines.join("\n")).unwrap_or_else(|error| panic!("{head}: {error}"));
            cases.push(Case {
                check: check.to_owned(),
                fires: what == "fires",
                also: also.iter().map(|line| line[5..].to_owned()).collect(),
                tree,
            });
        }
    }
    cases
}

#[test]
fn every_check_fires_and_is_silent() {
    let cases = cases();
    assert!(check::all().count() >= 40, "only {} checks", check::all().count());
    for check in check::all() {
        for fires in [true, false] {
            let known = cases.iter().any(|case| case.check == check.id && case.fires == fires);
            assert!(known, "{}: no tree in which it {}", check.id, verb(fires));
        }
    }
    let mut wrong = Vec::new();
    let known: BTreeSet<_> = check::all().map(|check| check.id).collect();
    for Case { check, fires, also, tree } in cases {
        assert!(known.contains(check.as_str()), "{check}: there is no such check");
        let found = findings(&Tree::of(tree));
        // A device for guests is a note of its own on each host that has one.
        let counts = |id: &&str| *id != "driver-vfio" || check == *id;
        let ids: BTreeSet<_> = found.iter().map(|finding| finding.check).filter(counts).collect();
        let expected: BTreeSet<_> = also.iter().map(String::as_str).collect();
        let expected = if fires { &expected | &BTreeSet::from([check.as_str()]) } else { expected };
        let ids: BTreeSet<&str> =
            ids.into_iter().filter(|id| *id != "driver-vfio" || check == *id).collect();
        if ids != expected {
            wrong.push(format!("{check} {}: {ids:?}, not {expected:?}", verb(fires)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn verb(fires: bool) -> &'static str {
    if fires { "fires" } else { "is silent" }
}

#[test]
fn hosts_without_a_defect_have_no_findings() {
    for name in ["host", "guest", "container"] {
        let found = findings(&Tree::of(base(name)));
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

#[test]
fn a_tree_in_a_directory_and_one_in_a_file_give_the_same_findings() {
    // Each directory is some hundred files, so a part of the cases has to do.
    for (number, case) in cases().into_iter().enumerate().step_by(9) {
        let folder = Folder::new(&format!("same-{number}"));
        case.tree.write_into(&folder.path().join("tree")).unwrap();
        let file = folder.path().join("file");
        fs::write(&file, case.tree.to_string()).unwrap();
        let expected = findings(&Tree::of(case.tree));
        let directory = Tree::open(&folder.path().join("tree")).unwrap();
        assert_eq!(findings(&directory), expected, "{} as a directory", case.check);
        assert_eq!(findings(&Tree::open(&file).unwrap()), expected, "{} as a file", case.check);
    }
}

#[test]
fn a_finding_says_what_was_seen_why_it_matters_and_what_to_do() {
    for case in cases().into_iter().filter(|case| case.fires) {
        for finding in findings(&Tree::of(case.tree)) {
            let texts = [&finding.seen, &finding.why, &finding.repair];
            assert!(texts.iter().all(|text| text.len() > 5 && !text.contains("  ")), "{finding:?}");
            assert!(finding.why.ends_with('.'), "{finding:?}");
        }
    }
}

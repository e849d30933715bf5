use std::collections::BTreeSet;

use super::*;

const FLAG: Variable = Variable {
    name: "PENSTOCK_PROCESS_TEST",
    kind: Kind::Flag(false),
    default: "off",
    about: "a variable of this test",
    group: Group::Tests,
};

fn with(kind: Kind) -> Variable {
    Variable { kind, ..FLAG }
}

#[test]
fn flags_have_four_words_each() {
    for yes in ["1", "true", "yes", "on", "ON", " True "] {
        assert_eq!(flag(yes), Some(true), "{yes:?}");
    }
    for no in ["0", "false", "no", "off", "Off"] {
        assert_eq!(flag(no), Some(false), "{no:?}");
    }
    for wrong in ["", "2", "enabled", "ja"] {
        assert_eq!(flag(wrong), None, "{wrong:?}");
    }
}

#[test]
fn a_value_of_another_kind_is_told_with_the_values_that_are_accepted() {
    for (kind, value, told) in [
        (Kind::Flag(true), "maybe", "`maybe` is not 1 (true, yes, on) or 0 (false, no, off)"),
        (Kind::Number(1, 8), "9", "`9` is not a number from 1 to 8"),
        (Kind::NumberOrNone(3, 8), "2", "`2` is not 0 or a number from 3 to 8"),
        (Kind::NumberOrNone(3, 8), "9", "`9` is not 0 or a number from 3 to 8"),
        (Kind::Number(0, u64::MAX), "-1", "`-1` is not a number, at least 0"),
        (Kind::Choice(&["tcp", "ucx"]), "rdma", "`rdma` is not tcp or ucx"),
    ] {
        let error = with(kind).check(OsStr::new(value)).unwrap_err();
        assert_eq!(error.to_string(), format!("variable PENSTOCK_PROCESS_TEST: {told}"));
    }
    let bytes = std::os::unix::ffi::OsStrExt::from_bytes(&[b'a', 0xFF]);
    assert!(with(Kind::Text).check(bytes).is_err());
    for (kind, value) in [
        (Kind::Flag(true), "no"),
        (Kind::Number(1, 8), " 8 "),
        (Kind::NumberOrNone(3, 8), "0"),
        (Kind::NumberOrNone(3, 8), "3"),
        (Kind::Choice(&["tcp", "ucx"]), "ucx"),
        (Kind::Text, "any"),
    ] {
        assert_eq!(with(kind).check(OsStr::new(value)), Ok(()), "{value}");
    }
    assert_eq!(with(Kind::Path).check(bytes), Ok(()));
}

#[test]
fn a_variable_has_one_line_in_the_table() {
    let names: BTreeSet<_> = ALL.iter().map(|variable| variable.name).collect();
    assert_eq!(names.len(), ALL.len());
    for variable in ALL {
        assert!(!variable.about.contains('\n') && !variable.about.ends_with('.'), "{variable:?}");
        assert!(!variable.default.is_empty(), "{variable:?}");
        if let Kind::Flag(default) = variable.kind {
            let words = if default { ["on", "–"] } else { ["off", "–"] };
            assert!(words.contains(&variable.default), "{variable:?}");
        }
    }
}

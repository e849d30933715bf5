//! Tests of the messages for wrong queries: each error once, with its place.

use penstock_dql::limits::{DEPTH_MAX, TEXT_BYTES_MAX};
use penstock_dql::{Error, ErrorKind, Query};

fn error(text: &str) -> Error {
    match Query::parse(text) {
        Ok(query) => panic!("{text} is not an error but {query}"),
        Err(error) => error,
    }
}

/// Checks the error of `text`: the words that it points at, and the first line of its message.
#[track_caller]
fn says(text: &str, place: &str, message: &str) -> Error {
    let error = error(text);
    assert_eq!(text.get(error.span()), Some(place), "{error}");
    let first = error.to_string();
    let first = first.lines().next().unwrap_or_default();
    assert_eq!(first.split(", at line").next(), Some(message), "{error}");
    error
}

#[test]
fn a_message_shows_the_place() {
    let error = error("SELECT ALL\n WHERE (global_memry > 1GB)");
    assert_eq!(
        error.to_string(),
        "there is no attribute `global_memry`, at line 2, character 9\n    \
         \x20WHERE (global_memry > 1GB)\n    \
         \x20       ^^^^^^^^^^^^\n\
         did you mean `global_memory`?"
    );
    assert_eq!((error.line(), error.column(), error.span()), (2, 9, 19..31));
    assert_eq!(error.suggestion(), Some("global_memory"));
    assert_eq!(error.kind(), &ErrorKind::Attribute("global_memry".into()));
    assert_eq!(
        error.summary(),
        "there is no attribute `global_memry`, at line 2, character 9; did you mean `global_memory`?"
    );
}

#[test]
fn the_end_can_come_too_early() {
    for (text, expected) in [
        ("", &["SELECT"][..]),
        ("SELECT TOP", &["a whole number"]),
        ("SELECT FROM", &["NODE"]),
        ("SELECT FROM NODE", &["the rank of a node", "a host name"]),
        ("SELECT WHERE", &["an attribute", "NOT", "("]),
        ("SELECT WHERE local AND", &["an attribute", "NOT", "("]),
        ("SELECT WHERE units >", &["a value"]),
        ("SELECT WHERE units > -", &["a number"]),
        ("SELECT WHERE units IN", &["("]),
        ("SELECT WHERE units IN (1", &[",", ")"]),
        ("SELECT WHERE units BETWEEN 1", &["AND"]),
        ("SELECT WHERE units NOT", &["LIKE", "IN", "BETWEEN", "HAS"]),
        ("SELECT WHERE units IS", &["NULL", "NOT"]),
        ("SELECT WHERE units IS NOT", &["NULL"]),
        ("SELECT WHERE (local", &["AND", "OR", ")"]),
        ("SELECT WHERE max_work_item_sizes[", &["a whole number"]),
        ("SELECT WHERE max_work_item_sizes[1", &["]"]),
        ("SELECT ORDER", &["BY"]),
        ("SELECT ORDER BY", &["an attribute"]),
        ("(SELECT", &["ALL", "TOP", "POS", "FROM", "WHERE", "ORDER", ")"]),
    ] {
        let error = says(text, "", "the query ends too early");
        assert_eq!(error.expected(), expected, "{text}");
        assert_eq!(error.column(), text.chars().count() + 1);
    }
}

#[test]
fn words_in_wrong_places_are_named_with_what_was_expected() {
    let unexpected =
        |text, place: &str| says(text, place, &format!("`{place}` is not expected here"));
    assert_eq!(unexpected("SELCT ALL", "SELCT").suggestion(), Some("SELECT"));
    assert_eq!(unexpected("SELECT ALL WHRE local", "WHRE").suggestion(), Some("WHERE"));
    assert_eq!(unexpected("SELECT WHERE name LKE 'x'", "LKE").suggestion(), Some("LIKE"));
    assert_eq!(unexpected("SELECT FROM NODES 1", "NODES").suggestion(), Some("NODE"));
    assert_eq!(
        unexpected("SELECT TOP 1 POS 1", "POS").expected(),
        ["FROM", "WHERE", "ORDER", ";", "the end of the query"]
    );
    assert_eq!(unexpected("SELECT WHERE local shared", "shared").expected().first(), Some(&"="));
    assert_eq!(
        unexpected("SELECT WHERE units = 1 type = gpu", "type").expected(),
        ["AND", "OR", "ORDER", ";", "the end of the query"]
    );
    unexpected("SELECT WHERE type = and", "and");
    unexpected("SELECT WHERE select = 1", "select");
    unexpected("SELECT WHERE 1 < units", "1");
    unexpected("SELECT FROM NODE where", "where");
    unexpected("SELECT FROM NODE 1.5", "1.5");
    unexpected("SELECT ORDER BY clock DESC ASC", "ASC");
    unexpected("SELECT ALL;;", ";");
    unexpected("SELECT ALL)", ")");
    unexpected("SELECT WHERE name LIKE tesla", "tesla");
    unexpected("SELECT POS -1", "-");
}

#[test]
fn names_of_attributes_and_values_are_checked() {
    assert_eq!(
        says("SELECT ORDER BY clok", "clok", "there is no attribute `clok`").suggestion(),
        Some("clock")
    );
    assert_eq!(
        says("SELECT WHERE foo = 1", "foo", "there is no attribute `foo`").suggestion(),
        None
    );
    let error = says("SELECT WHERE type = gpo", "gpo", "`type` has no value `gpo`");
    assert_eq!(
        (error.suggestion(), error.expected()),
        (Some("gpu"), &["cpu", "gpu", "accelerator", "custom"][..])
    );
    assert!(error.to_string().contains("\nexpected cpu, gpu, accelerator or custom\n"), "{error}");
    says(
        "SELECT WHERE double_fp_config HAS fmaa",
        "fmaa",
        "`double_fp_config` has no value `fmaa`",
    );
}

#[test]
fn what_does_not_go_with_a_type_is_refused() {
    for (condition, place, message) in [
        ("units", "units", "`max_compute_units` is a whole number; compare it with a value"),
        ("units = many", "many", "`max_compute_units` is a whole number; compare it with a number"),
        ("units = TRUE", "TRUE", "`max_compute_units` is a whole number; compare it with a number"),
        (
            "units = 1.2.3",
            "1.2.3",
            "`max_compute_units` is a whole number; compare it with a number",
        ),
        ("units > 1MB", "MB", "`max_compute_units` is a whole number; it has no unit"),
        (
            "units LIKE '1%'",
            "LIKE",
            "`max_compute_units` is a whole number; LIKE does not apply to it",
        ),
        (
            "units HAS 1",
            "HAS",
            "`max_compute_units` is a whole number; HAS only applies to sets and lists",
        ),
        (
            "units[0] = 1",
            "0",
            "`max_compute_units` is a whole number; it has no members with an index",
        ),
        (
            "memory > 1GHz",
            "GHz",
            "`global_mem_size` is a size in bytes; its units are B to TB and KiB to TiB",
        ),
        (
            "clock > 1GB",
            "GB",
            "`max_clock_frequency` is a frequency in MHz; its units are Hz to GHz",
        ),
        ("name = 1080", "1080", "`name` is a text; compare it with a word or a text in quotes"),
        (
            "name > 'a'",
            ">",
            "`name` is a text; it is not larger or smaller than another; use = or !=",
        ),
        ("local = 2", "2", "`local` is TRUE or FALSE; compare it with TRUE or FALSE"),
        ("local = 1MB", "1MB", "`local` is TRUE or FALSE; compare it with TRUE or FALSE"),
        (
            "local BETWEEN 0 AND 1",
            "BETWEEN",
            "`local` is TRUE or FALSE; it is not larger or smaller than another; use = or !=",
        ),
        ("type = 4", "4", "`type` is one of several names; compare it with one of them"),
        (
            "type < gpu",
            "<",
            "`type` is one of several names; it is not larger or smaller than another; use = or !=",
        ),
        (
            "version >= new",
            "new",
            "`version` is a text with a version in it; compare it with a version, as in 3.0",
        ),
        (
            "numeric_version = -1.0",
            "-1.0",
            "`numeric_version` is a version; compare it with a version, as in 3.0",
        ),
        ("version = 3MB", "MB", "`version` is a text with a version in it; it has no unit"),
        (
            "double_fp_config = fma",
            "fma",
            "`double_fp_config` is a set of flags; use HAS for a flag",
        ),
        ("extensions HAS 1", "1", "`extensions` is a set of words; its members are words"),
        (
            "max_work_item_sizes = 1",
            "=",
            "`max_work_item_sizes` is a list of numbers; name one of its members, as in max_work_item_sizes[0]",
        ),
        (
            "opencl_c_features = x",
            "=",
            "`opencl_c_features` is a list of names; use HAS to search it",
        ),
        (
            "node < mc3",
            "mc3",
            "`node` is a node's rank or host name; only its rank is larger or smaller than another",
        ),
        (
            "node = 1.5",
            "1.5",
            "`node` is a node's rank or host name; compare it with a whole number",
        ),
    ] {
        let error = says(&format!("SELECT WHERE {condition}"), place, message);
        assert!(matches!(error.kind(), ErrorKind::Type { .. }), "{error:?}");
    }
}

#[test]
fn what_has_no_order_is_no_key() {
    for (key, message) in [
        ("extensions", "`extensions` is a set of words; it has no order"),
        (
            "max_work_item_sizes",
            "`max_work_item_sizes` is a list of numbers; name one of its members, as in max_work_item_sizes[0]",
        ),
    ] {
        says(&format!("SELECT ORDER BY {key}"), key, message);
    }
}

#[test]
fn numbers_and_units_are_checked() {
    let number =
        |text, place: &str| says(text, place, &format!("`{place}` is not a number that fits here"));
    number("SELECT TOP 18446744073709551616", "18446744073709551616");
    number("SELECT WHERE vendor_id = 0x", "0x");
    number("SELECT WHERE vendor_id = 0x1ffffffffffffffff", "0x1ffffffffffffffff");
    number("SELECT WHERE version = 1.2.3.4", "1.2.3.4");
    number("SELECT WHERE max_work_item_sizes[4294967296] = 1", "4294967296");
    let long = format!("{}.0", "9".repeat(400));
    let error = error(&format!("SELECT WHERE load > {long}"));
    assert!(matches!(error.kind(), ErrorKind::Type { .. }), "{error}");
    let error = says("SELECT WHERE memory > 1XB", "XB", "there is no unit `XB`");
    assert_eq!(error.expected().first(), Some(&"B"));
    says("SELECT WHERE units > 3cards", "cards", "there is no unit `cards`");
    says("SELECT POS 0", "0", "positions are counted from 1");
    says("SELECT FROM NODE 3 - 1", "3 - 1", "this range of nodes ends before it begins");
}

#[test]
fn signs_that_mean_nothing_are_named() {
    says("SELECT @", "@", "`@` is not part of the language");
    says("SELECT WHERE units > 3.", ".", "`.` is not part of the language");
    says("SELECT WHERE name = 'x", "'", "this quote has no end");
    says("SELECT WHERE name = \"x'", "\"", "this quote has no end");
    says("SELECT WHERE units > %d", "%d", "a query without values cannot have holes");
    // Control characters must not reach the terminal.
    let error = error("SELECT \x1b[2J");
    assert_eq!(
        error.to_string(),
        "` ` is not part of the language, at line 1, character 8\n    SELECT  [2J\n           ^"
    );
}

#[test]
fn places_count_characters_and_not_bytes() {
    let error = says("SELECT WHERE name = 'äöü€' AND x = 1", "x", "there is no attribute `x`");
    assert_eq!(error.column(), 32);
    assert!(
        error.to_string().lines().nth(2).is_some_and(|line| line.chars().count() == 4 + 32),
        "{error}"
    );
}

#[test]
fn a_long_line_is_shown_around_the_place() {
    let text =
        format!("SELECT WHERE {}x = 1{}", "local AND ".repeat(100), " AND local".repeat(100));
    let error = error(&text);
    let message = error.to_string();
    let lines: Vec<_> = message.lines().collect();
    let caret = lines[2].find('^').unwrap();
    assert_eq!(&lines[1][caret..caret + 5], "x = 1");
    assert!(lines.iter().all(|line| line.len() < 110), "{message}");
    assert_eq!(error.column(), 13 + 1000 + 1);
}

#[test]
fn texts_are_limited_in_length_and_depth() {
    let long = |length: usize| format!("SELECT{}", " ".repeat(length - 6));
    assert!(Query::parse(&long(TEXT_BYTES_MAX)).is_ok());
    assert_eq!(error(&long(TEXT_BYTES_MAX + 1)).kind(), &ErrorKind::TooLong);
    for (open, close) in [("(", ")"), ("NOT ", ""), ("NOT (", ")")] {
        let each = if open.len() == 5 { 2 } else { 1 };
        let nested = |depth: usize| {
            format!("SELECT WHERE {}local{}", open.repeat(depth / each), close.repeat(depth / each))
        };
        assert!(Query::parse(&nested(DEPTH_MAX)).is_ok());
        assert_eq!(error(&nested(DEPTH_MAX + each)).kind(), &ErrorKind::TooDeep);
        // This is the deepest text that fits the limit.
        let hostile = open.repeat((TEXT_BYTES_MAX - 30) / open.len());
        assert_eq!(error(&format!("SELECT WHERE {hostile}")).kind(), &ErrorKind::TooDeep);
    }
    assert_eq!(error(&"(".repeat(TEXT_BYTES_MAX)).kind(), &ErrorKind::TooDeep);
    let wide = format!("SELECT WHERE {}", vec!["local"; 7000].join(" OR "));
    assert!(Query::parse(&wide).is_ok());
}

#[test]
fn a_small_stack_is_enough_for_the_deepest_query() {
    let nested =
        format!("SELECT WHERE {}local{}", "NOT (".repeat(DEPTH_MAX / 2), ")".repeat(DEPTH_MAX / 2));
    let parse = move || Query::parse(&nested).map(|query| query.to_string().len());
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(parse).unwrap();
    assert!(thread.join().unwrap().is_ok());
}

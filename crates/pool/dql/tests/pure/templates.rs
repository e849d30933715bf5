//! Tests of queries with holes.

use crate::common;
use penstock_dql::{Error, ErrorKind, HoleKind, Template, Value};

fn bound(text: &str, values: &[Value<'_>]) -> Result<String, Error> {
    Template::parse(text)?.bind(values).map(|query| query.to_string())
}

#[track_caller]
fn fails(text: &str, values: &[Value<'_>], place: &str) -> Error {
    let error = bound(text, values).unwrap_err();
    assert_eq!(text.get(error.span()), Some(place), "{error}");
    error
}

#[test]
fn each_conversion_is_a_hole() {
    let text =
        "SELECT WHERE units IN (%d, %i, %u, %x, %ld, %lu, %zu, %lld, %llu, %f, %g) AND vendor = %s";
    let template = Template::parse(text).unwrap();
    use HoleKind::*;
    assert_eq!(
        template.holes(),
        [
            Int,
            Int,
            Unsigned,
            Hex,
            Long,
            UnsignedLong,
            Size,
            LongLong,
            UnsignedLongLong,
            Float,
            Float,
            Text
        ]
    );
    let mut values: Vec<_> = (1..=9).map(Value::Int).collect();
    values.extend([Value::Float(0.5), Value::Float(1e20), Value::from("nvidia")]);
    assert_eq!(
        template.bind(&values).unwrap().to_string(),
        "SELECT ALL WHERE max_compute_units IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 0.5, 100000000000000000000.0) AND vendor = nvidia"
    );
}

#[test]
fn the_published_template_works() {
    let template =
        Template::parse("SELECT POS 1 FROM \nNODE %d WHERE global_memory > 1024MB").unwrap();
    let devices = common::inventory("cluster");
    let chosen =
        [0, 1, 2, 3].map(|node| template.bind(&[Value::Int(node)]).unwrap().select(&devices));
    assert_eq!(chosen, [vec![0], vec![2], vec![4], vec![]]);
}

#[test]
fn holes_stand_wherever_values_do() {
    for (text, values, query) in [
        ("SELECT POS %d", vec![Value::Int(2)], "SELECT POS 2"),
        ("SELECT TOP %zu", vec![Value::Int(0)], "SELECT TOP 0"),
        (
            "SELECT FROM NODE %d-%d, %s",
            vec![Value::Int(1), Value::Int(2), "mc3".into()],
            "SELECT ALL FROM NODE 1-2, mc3",
        ),
        (
            "SELECT WHERE memory > %zuMB",
            vec![Value::Int(5)],
            "SELECT ALL WHERE global_mem_size > 5MB",
        ),
        (
            "SELECT WHERE clock < %g GHz",
            vec![Value::Float(1.5)],
            "SELECT ALL WHERE max_clock_frequency < 1.5GHz",
        ),
        ("SELECT WHERE type = %s", vec!["GPU".into()], "SELECT ALL WHERE type = gpu"),
        ("SELECT WHERE name LIKE %s", vec!["a%'".into()], "SELECT ALL WHERE name LIKE 'a%'''"),
        ("SELECT WHERE name LIKE '100%%_'", vec![], "SELECT ALL WHERE name LIKE '100%_'"),
        ("SELECT WHERE name = '%%s'", vec![], "SELECT ALL WHERE name = '%s'"),
        ("SELECT WHERE name = '%s'", vec!["x".into()], "SELECT ALL WHERE name = 'x'"),
        ("SELECT WHERE name = \"%s\"", vec!["x".into()], "SELECT ALL WHERE name = 'x'"),
        ("SELECT WHERE local = %d", vec![Value::Int(0)], "SELECT ALL WHERE local = FALSE"),
        ("SELECT WHERE version >= %s", vec!["2.1".into()], "SELECT ALL WHERE version >= 2.1"),
        (
            "SELECT WHERE numeric_version = %d",
            vec![Value::Int(3)],
            "SELECT ALL WHERE numeric_version = 3.0",
        ),
        (
            "SELECT WHERE double_fp_config HAS %s",
            vec!["FMA".into()],
            "SELECT ALL WHERE double_fp_config HAS fma",
        ),
        ("SELECT WHERE rank > %d", vec![Value::Int(-1)], "SELECT ALL WHERE rank > -1"),
        (
            "SELECT WHERE node = %d OR node = %s",
            vec![Value::Int(1), "h".into()],
            "SELECT ALL WHERE node = 1 OR node = h",
        ),
    ] {
        assert_eq!(bound(text, &values).as_deref(), Ok(query), "{text}");
    }
}

#[test]
fn a_value_is_one_literal_whatever_is_in_it() {
    for value in ["x' OR '' = '", "x OR local", "NULL", "", "'", "\"", "a;b", "%d", "TRUE", "1.5"] {
        let query =
            Template::parse("SELECT WHERE name = %s").unwrap().bind(&[value.into()]).unwrap();
        let quoted = format!("SELECT ALL WHERE name = '{}'", value.replace('\'', "''"));
        assert_eq!(query.to_string(), quoted);
        assert!(query.select(&common::inventory("cluster")).is_empty());
    }
    assert_eq!(
        bound("SELECT WHERE name = %s", &["K20c".into()]).unwrap(),
        "SELECT ALL WHERE name = K20c"
    );
}

#[test]
fn what_is_wrong_whatever_the_values_is_found_without_them() {
    for text in [
        "SELECT WHERE units = %s",
        "SELECT WHERE name = %d",
        "SELECT WHERE colour = %s",
        "SELECT WHERE local = %f",
        "SELECT WHERE type = %d",
        "SELECT WHERE units > %dMB",
        "SELECT WHERE version > %f",
        "SELECT WHERE units > -%d",
        "SELECT POS %s",
        "SELECT TOP %f",
        "SELECT FROM NODE %f",
        "SELECT FROM NODE %s-%s",
        "SELECT ORDER BY %s",
        "SELECT WHERE %s = 1",
        "SELECT WHERE max_work_item_sizes[%d] = 1",
        "SELECT WHERE name LIKE %d",
    ] {
        let error = Template::parse(text).unwrap_err();
        assert!(error.line() == 1 && !error.to_string().is_empty(), "{text}");
    }
}

#[test]
fn a_percent_sign_that_is_no_hole_is_an_error() {
    for (text, place) in [
        ("SELECT TOP %", "%"),
        ("SELECT TOP %%", "%%"),
        ("SELECT TOP %5d", "%5"),
        ("SELECT TOP %.2f", "%."),
        ("SELECT TOP %hd", "%h"),
        ("SELECT TOP %€", "%€"),
    ] {
        let error = fails(text, &[], place);
        assert_eq!(error.kind(), &ErrorKind::Conversion);
        assert_eq!(error.expected().len(), 12);
    }
    for text in [
        "SELECT WHERE name LIKE 'a%'",
        "SELECT WHERE name LIKE '%s%%'",
        "SELECT WHERE name LIKE '%d'",
        "SELECT WHERE name LIKE 'a%s'",
    ] {
        assert_eq!(fails(text, &[], "%").kind(), &ErrorKind::HoleInQuotes);
    }
}

#[test]
fn values_must_be_as_many_and_of_the_kind_of_the_holes() {
    let count = |holes, values| ErrorKind::ValueCount { holes, values };
    assert_eq!(fails("SELECT TOP %d", &[], "").kind(), &count(1, 0));
    assert_eq!(fails("SELECT", &[Value::Int(1)], "").kind(), &count(0, 1));
    for (conversion, value) in [
        ("%d", Value::Int(1 << 31)),
        ("%i", Value::Float(1.0)),
        ("%u", Value::Int(-1)),
        ("%x", Value::Int(1 << 32)),
        ("%ld", Value::Int(1 << 63)),
        ("%lld", Value::Int(-(1 << 63) - 1)),
        ("%lu", Value::Int(1 << 64)),
        ("%zu", Value::Int(-1)),
        ("%llu", Value::from("1")),
        ("%f", Value::Float(f64::NAN)),
        ("%g", Value::Float(f64::INFINITY)),
        ("%f", Value::Int(1)),
    ] {
        let text = format!("SELECT WHERE units = 1 AND units > {conversion}");
        let error = fails(&text, &[value], conversion);
        assert!(matches!(error.kind(), ErrorKind::Value { hole: 1, .. }), "{error}");
    }
    assert!(matches!(
        fails("SELECT WHERE name = %s", &[Value::Int(1)], "%s").kind(),
        ErrorKind::Value { .. }
    ));
}

#[test]
fn values_are_checked_as_if_they_were_written() {
    fails("SELECT POS %d", &[Value::Int(0)], "%d");
    fails("SELECT POS %d", &[Value::Int(-1)], "%d");
    fails("SELECT FROM NODE %d-%d", &[Value::Int(2), Value::Int(1)], "%d-%d");
    fails("SELECT WHERE local = %d", &[Value::Int(2)], "%d");
    fails("SELECT WHERE version > %s", &["new".into()], "%s");
    let error = fails("SELECT WHERE type = %s", &["gpo".into()], "%s");
    assert_eq!(error.suggestion(), Some("gpu"));
    let most = format!("SELECT WHERE memory < {}TB", "%llu");
    assert!(bound(&most, &[Value::Int(u64::MAX.into())]).is_ok());
}

//! Any text as a query of devices, with and without holes: what is one prints as the same one, and selects each device at most
//! once.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use penstock_dql::limits::TEXT_BYTES_MAX;
use penstock_dql::{
    Attribute, HoleKind, Kind, Listed, NodeFacts, Query, RawDevice, Template, Value, Version,
};

/// Devices with a value for every attribute.
static LISTED: LazyLock<Vec<Listed>> = LazyLock::new(|| {
    (0..3)
        .map(|number| {
            Attribute::all().fold(Listed::new(), |it, attribute| it.with(attribute, value(attribute, number)))
        })
        .collect()
});

/// What a driver could answer, short, long and strange.
static INFO: LazyLock<Vec<(u32, Vec<u8>)>> = LazyLock::new(|| {
    (0x1000..0x1080u32).map(|query| (query, format!("{query} Some 3.0\0").into_bytes())).collect()
});

fn value(attribute: Attribute, number: u32) -> Value<'static> {
    let version = Version::new(number, 1);
    match attribute.kind() {
        Kind::Bool => Value::Bool(number > 0),
        Kind::Real => Value::Float(f64::from(number) - 0.5),
        Kind::Version => Value::Version(version),
        Kind::Versions => Value::Versions(vec![version]),
        Kind::Numbers | Kind::Choices(_) => Value::Ints(vec![number.into(), 0x1086]),
        Kind::Names => Value::Names(vec!["a".into(), "b".into()]),
        Kind::Text | Kind::Tokens | Kind::VersionText | Kind::Host | Kind::Node => {
            Value::Text(format!("a{number} b {version}").into())
        }
        _ => Value::Int((1 << number).into()),
    }
}

fn check(query: &Query) {
    let canonical = query.to_string();
    // Full names are longer than short ones.
    if canonical.len() <= TEXT_BYTES_MAX {
        let again = Query::parse(&canonical).unwrap_or_else(|error| panic!("{canonical}\n{error}"));
        assert_eq!((&again, &again.to_string()), (query, &canonical));
    }
    let mut chosen = query.select(&LISTED);
    chosen.sort_unstable();
    chosen.dedup();
    assert_eq!(chosen.len(), query.select(&LISTED).len());
    let facts =
        NodeFacts { hostname: Some("a.b"), rank: Some(1), load: Some(f64::NAN), ..NodeFacts::default() };
    _ = query.select(&[
        RawDevice { info: &INFO, node: facts },
        RawDevice { info: &[], node: NodeFacts::default() },
    ]);
}

fuzz_target!(|text: &str| {
    match Query::parse(text) {
        Ok(query) => check(&query),
        Err(error) => {
            assert!(error.summary().lines().count() == 1 && !error.to_string().is_empty());
            assert!(text.len() > TEXT_BYTES_MAX || text.get(error.span()).is_some());
        }
    }
    let Ok(template) = Template::parse(text) else { return };
    let values: Vec<_> = template
        .holes()
        .iter()
        .map(|hole| match hole {
            HoleKind::Text => Value::from(text),
            HoleKind::Float => Value::Float(-1.25e17),
            _ => Value::Int(text.len() as i128),
        })
        .collect();
    if let Ok(query) = template.bind(&values) {
        check(&query);
    }
});

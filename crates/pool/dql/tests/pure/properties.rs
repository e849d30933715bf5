//! Properties that hold for all queries.

use std::sync::LazyLock;

use crate::common;
use penstock_dql::{Attribute, Kind, Listed, Query, Template};
use proptest::prelude::*;

static DEVICES: LazyLock<Vec<Listed>> = LazyLock::new(|| common::inventory("cluster"));

fn attribute() -> impl Strategy<Value = Attribute> {
    (0..Attribute::all().len()).prop_map(|index| Attribute::all().nth(index).unwrap())
}

fn text() -> impl Strategy<Value = String> {
    let quoted =
        "[a-zA-Z0-9 '\"%_äß.-]{0,12}".prop_map(|text| format!("'{}'", text.replace('\'', "''")));
    prop_oneof!["x[a-z0-9_]{0,8}([.-][a-z0-9]{1,3})?", quoted]
}

fn number() -> BoxedStrategy<String> {
    prop_oneof![
        any::<u64>().prop_map(|number| number.to_string()),
        any::<u32>().prop_map(|number| format!("{number:#x}")),
        (0u32..9999, 0u32..9999).prop_map(|(whole, rest)| format!("{whole}.{rest}")),
        any::<u32>().prop_map(|number| format!("-{number}")),
    ]
    .boxed()
}

fn with_unit(units: &'static [&'static str]) -> BoxedStrategy<String> {
    let number = prop_oneof![
        any::<u32>().prop_map(|it| it.to_string()),
        (0u32..999, 0u32..999).prop_map(|(a, b)| format!("{a}.{b}"))
    ];
    (number, prop::sample::select(units))
        .prop_map(|(number, unit)| format!("{number}{unit}"))
        .boxed()
}

/// Generates a test that fits the attribute's type.
fn test() -> impl Strategy<Value = String> {
    attribute().prop_flat_map(|it| {
        let equality = prop::sample::select(&["=", "==", "!=", "<>"][..]);
        let any_sign = prop::sample::select(&["=", "!=", "<", "<=", ">", ">="][..]);
        let compared = |values: BoxedStrategy<String>| {
            let many = prop::collection::vec(values.clone(), 1..4);
            prop_oneof![
                (any_sign.clone(), values.clone())
                    .prop_map(move |(sign, value)| format!("{it} {sign} {value}")),
                many.prop_map(move |values| format!("{it} IN ({})", values.join(","))),
                (values.clone(), values)
                    .prop_map(move |(low, high)| format!("{it} NOT BETWEEN {low} AND {high}")),
            ]
            .boxed()
        };
        let texts =
            (equality.clone(), text()).prop_map(move |(sign, text)| format!("{it} {sign} {text}")).boxed();
        let likes = "[a-zA-Z%_' ]{0,10}"
            .prop_map(move |it2| format!("{it} LIKE '{}'", it2.replace('\'', "''")))
            .boxed();
        let has =
            |values: BoxedStrategy<String>| values.prop_map(move |value| format!("{it} HAS {value}")).boxed();
        let names = |named: &[penstock_dql::Named]| {
            prop::sample::select(named.iter().map(|it| it.name.to_owned()).collect::<Vec<_>>()).boxed()
        };
        let version = (0u32..99, 0u32..99, 0u32..99).prop_map(|(a, b, c)| format!("{a}.{b}.{c}")).boxed();
        let own = match it.kind() {
            Kind::Bool => Just(it.to_string()).boxed(),
            Kind::Number | Kind::Real => compared(number()),
            Kind::Bytes => compared(with_unit(&["", "B", "kb", "MB", "GiB", " TB"])),
            Kind::Frequency => compared(with_unit(&["", "Hz", "khz", "MHz", " GHz"])),
            Kind::Text | Kind::Host => prop_oneof![texts, likes].boxed(),
            Kind::Tokens => prop_oneof![texts, likes, has(text().boxed())].boxed(),
            Kind::Version => compared(version),
            Kind::VersionText => prop_oneof![texts, likes, compared(version)].boxed(),
            Kind::Choice(named) | Kind::Type(named) => {
                (equality, names(named)).prop_map(move |(sign, name)| format!("{it} {sign} {name}")).boxed()
            }
            Kind::Flags(named) | Kind::Choices(named) => has(names(named)),
            Kind::Numbers => has(number()),
            Kind::Names => has(text().boxed()),
            Kind::Versions => has(version),
            _ => compared(any::<u32>().prop_map(|rank| rank.to_string()).boxed()),
        };
        prop_oneof![4 => own, 1 => Just(format!("{it} IS NULL")), 1 => Just(format!("{it} IS NOT NULL"))]
    })
}

fn condition() -> impl Strategy<Value = String> {
    test().prop_recursive(5, 24, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4)
                .prop_map(|all| format!("({})", all.join(" AND "))),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|any| any.join(" OR ")),
            inner.prop_map(|condition| format!("NOT ({condition})")),
        ]
    })
}

fn query() -> impl Strategy<Value = String> {
    let selection = prop_oneof![
        Just(String::new()),
        Just(" ALL".to_owned()),
        (0u64..9).prop_map(|count| format!(" TOP {count}")),
        (1u64..9).prop_map(|place| format!(" POS {place}")),
    ];
    let node = prop_oneof![
        (0u32..5).prop_map(|rank| rank.to_string()),
        (0u32..3, 0u32..3).prop_map(|(first, more)| format!("{first}-{}", first + more)),
        text(),
    ];
    let nodes = prop::collection::vec(node, 0..3).prop_map(|nodes| {
        if nodes.is_empty() { String::new() } else { format!(" FROM NODE {}", nodes.join(", ")) }
    });
    let filter = prop::option::of(condition())
        .prop_map(|it| it.map_or(String::new(), |it| format!(" WHERE {it}")));
    let order =
        prop::option::of((attribute(), any::<bool>())).prop_filter_map("has an order", |key| {
            match key {
                None => Some(String::new()),
                Some((attribute, descending)) => {
                    let text =
                        format!(" ORDER BY {attribute}{}", if descending { " DESC" } else { "" });
                    Query::parse(&format!("SELECT{text}")).is_ok().then_some(text)
                }
            }
        });
    (selection, nodes, filter, order).prop_map(|(selection, nodes, filter, order)| {
        format!("SELECT{selection}{nodes}{filter}{order}")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn the_canonical_text_is_the_same_query(text in query()) {
        let query = Query::parse(&text).map_err(|error| TestCaseError::fail(format!("{error}")))?;
        let canonical = query.to_string();
        let again = Query::parse(&canonical).map_err(|error| TestCaseError::fail(format!("{text}\n{error}")))?;
        prop_assert_eq!(&again, &query, "{}", text);
        prop_assert_eq!(again.to_string(), canonical);
    }

    #[test]
    fn a_condition_and_its_opposite_select_different_devices(condition in condition()) {
        let select = |text: String| Query::parse(&text).unwrap().select(&DEVICES);
        let holds = select(format!("SELECT WHERE {condition}"));
        let fails = select(format!("SELECT WHERE NOT ({condition})"));
        prop_assert!(holds.iter().all(|index| !fails.contains(index)));
        // A device that neither query selects is unknown.
        let query = Query::parse(&format!("SELECT WHERE {condition}")).unwrap();
        for (index, device) in DEVICES.iter().enumerate() {
            let answer = query.holds(device);
            prop_assert_eq!(holds.contains(&index), answer == Some(true));
            prop_assert_eq!(fails.contains(&index), answer == Some(false));
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "(SELECT|WHERE|AND|OR|NOT|IN|LIKE|units|type|name|=|<|-|[(),;'%.\\[\\]]|%d|%s|1|2.5|MB|\\PC| ){0,30}") {
        if let Err(error) = Query::parse(&text) {
            prop_assert!(text.get(error.span()).is_some(), "{:?}", error);
            prop_assert!(!error.to_string().is_empty() && !error.summary().contains('\n'));
        }
        if let Ok(template) = Template::parse(&text) {
            prop_assert!(template.bind(&vec![1u64.into(); template.holes().len()]).is_ok() || !template.holes().is_empty());
        }
    }

    #[test]
    fn a_value_never_changes_the_rest_of_a_query(value in any::<String>()) {
        let template = Template::parse("SELECT WHERE name = %s AND rank = 1").unwrap();
        let canonical = template.bind(&[value.as_str().into()]).unwrap().to_string();
        prop_assert!(canonical.starts_with("SELECT ALL WHERE name = ") && canonical.ends_with(" AND rank = 1"));
        let again = Query::parse(&canonical).unwrap();
        prop_assert_eq!(again.to_string(), canonical);
    }
}

//! Reads inventories from JSON files: a list of devices, each with `node` (attributes of the node)
//! and `info` (answers of the driver). Missing and `null` values are unknown.

use std::path::Path;

use penstock_dql::{Attribute, Kind, Listed, Value, Version};
use serde_json::Value as Json;

/// Reads the inventory `tests/fixtures/NAME.json`.
pub fn inventory(name: &str) -> Vec<Listed> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
        .with_extension("json");
    let text = std::fs::read_to_string(&path).unwrap();
    let devices: Vec<Json> = serde_json::from_str(&text).unwrap();
    devices.iter().map(device).collect()
}

fn device(json: &Json) -> Listed {
    let parts = ["node", "info"].into_iter().filter_map(|part| json[part].as_object());
    parts.flatten().filter(|(_, value)| !value.is_null()).fold(
        Listed::new(),
        |device, (name, json)| {
            let attribute =
                Attribute::find(name).unwrap_or_else(|| panic!("there is no attribute {name}"));
            device.with(attribute, value(attribute, json))
        },
    )
}

fn value(attribute: Attribute, json: &Json) -> Value<'static> {
    let wrong = || -> ! { panic!("{attribute} cannot be {json}") };
    let text = || json.as_str().unwrap_or_else(|| wrong()).to_owned();
    let list = || json.as_array().unwrap_or_else(|| wrong()).iter();
    let version = |json: &Json| json.as_str().and_then(Version::find).unwrap_or_else(|| wrong());
    match attribute.kind() {
        Kind::Bool => Value::Bool(json.as_bool().unwrap_or_else(|| wrong())),
        Kind::Real => Value::Float(json.as_f64().unwrap_or_else(|| wrong())),
        Kind::Version => Value::Version(version(json)),
        Kind::Versions => Value::Versions(list().map(version).collect()),
        Kind::Numbers | Kind::Choices(_) => {
            Value::Ints(list().map(|it| it.as_u64().unwrap().into()).collect())
        }
        Kind::Names => {
            Value::Names(list().map(|it| it.as_str().unwrap().to_owned().into()).collect())
        }
        Kind::Choice(names) | Kind::Type(names) => {
            let named = names.iter().find(|named| *json == named.name).unwrap_or_else(|| wrong());
            Value::Int(named.value.into())
        }
        Kind::Text | Kind::Tokens | Kind::VersionText | Kind::Host | Kind::Node => {
            Value::Text(text().into())
        }
        _ => Value::Int(json.as_u64().unwrap_or_else(|| wrong()).into()),
    }
}

//! What `penstock status` says about the confinement of workers.

use serde_json::Value;

use crate::run::Probed;

/// Returns the level that a node's workers reach, for a table.
pub fn level(status: &Value) -> String {
    let text = |name: &str| confinement(status)?.get(name)?.as_str();
    match (text("level"), text("required")) {
        (Some(level), Some(required)) if text("refusal").is_some() => {
            format!("{level} (needs {required})")
        }
        (Some(level), _) => level.to_owned(),
        // The daemon is older, or has not started a worker yet.
        (None, _) => "-".to_owned(),
    }
}

/// Returns a line for each thing that confines workers less than it could, and for what an
/// administrator should know, such as that the device is simulated.
pub fn notes(probed: &[Probed]) -> String {
    let mut lines = String::new();
    for probed in probed {
        let Ok(status) = &probed.answer else { continue };
        let node = status.get("host").and_then(Value::as_str).unwrap_or("-");
        let mut say = |text: String| lines.push_str(&format!("node {node}: {text}\n"));
        if status.get("simulated").and_then(Value::as_bool) == Some(true) {
            say("its only device is simulated, for tests".to_owned());
        }
        if status.get("draining").and_then(Value::as_bool) == Some(true) {
            let left = match status.get("sessions").and_then(Value::as_array).map_or(0, Vec::len) {
                1 => "1 session is left".to_owned(),
                left => format!("{left} sessions are left"),
            };
            say(format!("it takes no new clients, because an administrator drains it; {left}"));
        }
        if let Some(groups) = status.get("control_groups") {
            lacks(groups, "lacks").into_iter().for_each(&mut say);
        }
        let Some(confinement) = confinement(status) else { continue };
        let text = |name: &str| confinement.get(name).and_then(Value::as_str);
        if let Some(refusal) = text("refusal") {
            say(format!("clients are refused: {refusal}"));
        }
        for list in ["lacks", "notes"] {
            lacks(confinement, list).into_iter().for_each(&mut say);
        }
        if let Some(open) = text("network").filter(|it| it.starts_with("open")) {
            say(format!("the network is {open}"));
        }
    }
    lines
}

/// Returns what is missing and what an administrator can do, a line each.
fn lacks(of: &Value, list: &str) -> Vec<String> {
    let list = of.get(list).and_then(Value::as_array).into_iter().flatten();
    let text = |lack: &Value, name: &str| lack.get(name)?.as_str().map(str::to_owned);
    list.filter_map(|lack| Some(format!("{}; {}", text(lack, "what")?, text(lack, "remedy")?)))
        .collect()
}

fn confinement(status: &Value) -> Option<&Value> {
    status.get("confinement").filter(|it| it.is_object())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn probed(confinement: Value) -> Probed {
        Probed {
            node: penstock_client::config::NodeAddress::unix("local", "/x".into()),
            answer: Ok(json!({ "host": "a", "confinement": confinement })),
        }
    }

    #[test]
    fn a_full_level_needs_no_words() {
        let full = probed(json!({
            "level": "full", "required": "off", "network": "closed", "lacks": [], "refusal": null,
        }));
        assert_eq!(level(full.answer.as_ref().unwrap()), "full");
        assert_eq!(notes(&[full]), "");
        assert_eq!((level(&json!({})), notes(&[probed(Value::Null)])), ("-".into(), String::new()));
    }

    #[test]
    fn a_drained_node_is_told_with_what_is_left() {
        let mut of = probed(Value::Null);
        of.answer = Ok(json!({ "host": "a", "draining": true, "sessions": [{}, {}] }));
        let told = "because an administrator drains it; 2 sessions are left\n";
        assert!(notes(&[of]).ends_with(told));
        let mut of = probed(Value::Null);
        of.answer = Ok(json!({ "host": "a", "draining": false }));
        assert_eq!(notes(&[of]), "");
    }

    #[test]
    fn a_lack_of_control_groups_is_told() {
        let mut of = probed(Value::Null);
        let groups = json!({ "lacks": [{ "what": "no groups", "remedy": "delegate them" }] });
        of.answer = Ok(json!({ "host": "a", "control_groups": groups }));
        assert_eq!(notes(&[of]), "node a: no groups; delegate them\n");
    }

    #[test]
    fn what_is_missing_is_told_with_its_remedy() {
        let calls = probed(json!({
            "level": "calls", "required": "files", "network": "open, because of peers",
            "lacks": [{ "what": "there is no Landlock", "remedy": "boot with it" }],
            "notes": [{ "what": "a folder is too wide", "remedy": "name another one" }],
            "refusal": "workers reach `calls`",
        }));
        assert_eq!(level(calls.answer.as_ref().unwrap()), "calls (needs files)");
        assert_eq!(
            notes(&[calls]),
            "node a: clients are refused: workers reach `calls`\n\
             node a: there is no Landlock; boot with it\n\
             node a: a folder is too wide; name another one\n\
             node a: the network is open, because of peers\n"
        );
    }
}

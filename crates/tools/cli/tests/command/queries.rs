//! Queries that choose devices, with the command and the devices of this host.

use std::process::Output;

use crate::common::{Home, stderr};
use penstock_trial::{Need, skip};

/// Runs the command on two devices of PoCL. `variable` is the query in PENSTOCK_DEVICES.
fn penstock(home: &Home, variable: Option<&str>, args: &[&str]) -> Output {
    let mut command = home.penstock(args);
    command
        .env("POCL_DEVICES", "pthread pthread")
        .env("PENSTOCK_DEVICES", variable.unwrap_or_default());
    command.output().unwrap()
}

/// Returns the indices of the devices that are listed.
fn indices(home: &Home, variable: Option<&str>, query: Option<&str>) -> Vec<u64> {
    let mut args = vec!["devices", "--json"];
    args.extend(query);
    let output = penstock(home, variable, &args);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let devices = json["devices"].as_array().unwrap();
    let status = if devices.is_empty() { 3 } else { 0 };
    assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
    devices.iter().map(|device| device["index"].as_u64().unwrap()).collect()
}

#[test]
fn devices_are_listed_as_the_query_says() {
    let home = Home::new("order");
    let all = indices(&home, None, None);
    let Some(last) = all.len().checked_sub(1) else {
        skip(Need::OpenCl, "this host has no OpenCL device to choose");
        return;
    };
    let mut backwards = all.clone();
    backwards.reverse();
    let query = "SELECT ORDER BY device_index DESC";
    assert_eq!(indices(&home, None, Some(query)), backwards);
    assert_eq!(indices(&home, Some(query), None), backwards);
    // A query on the command line overrides the variable.
    assert_eq!(
        indices(&home, Some(query), Some("select all where local and node_devices > 0;")),
        all
    );
    assert_eq!(
        indices(&home, None, Some("SELECT POS 1 FROM NODE 0 WHERE global_memory > 1MB")),
        [all[0]]
    );
    assert_eq!(
        indices(&home, None, Some(&format!("SELECT WHERE device_index = {}", all[last]))),
        [all[last]]
    );
    assert_eq!(indices(&home, None, Some("SELECT WHERE link_latency IS NOT NULL")), [0; 0]);
    // An embedded daemon has no other client.
    assert_eq!(indices(&home, None, Some("SELECT WHERE load = 0")), all);
    let output = penstock(&home, None, &["devices", "SELECT FROM NODE 1"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
    let count = all.len();
    assert_eq!(
        stderr(&output),
        format!(
            "penstock: the query selects none of the pool's {count} devices (penstock devices \
             shows what a query selects)\n"
        )
    );
}

#[test]
fn a_wrong_query_is_shown_with_its_place() {
    let home = Home::new("wrong");
    let output = penstock(&home, None, &["devices", "SELECT ALL WHERE global_memry > 1GB"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "penstock: there is no attribute `global_memry`, at line 1, character 18\n    \
         SELECT ALL WHERE global_memry > 1GB\n    \
         \x20                ^^^^^^^^^^^^\n\
         did you mean `global_memory`?\n"
    );
}

#[test]
fn a_wrong_query_in_the_variable_is_told_in_one_line() {
    let home = Home::new("variable");
    let message = "penstock: variable PENSTOCK_DEVICES: `SELCT` is not expected here, at line 1, character 1; did you mean `SELECT`?\n";
    for (args, code) in [(&["devices"][..], 2), (&["run", "--", "true"], 125)] {
        let output = penstock(&home, Some("SELCT ALL"), args);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(code), message));
    }
}

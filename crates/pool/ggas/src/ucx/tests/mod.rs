//! Tests with UCX itself. UCX needs its variables before a process begins, so each test runs again
//! in a process that has them.

mod carriers;
mod header;
mod heaps;

use std::process::Command;

use penstock_trial::{Need, skip};

use super::ENVIRONMENT;

/// Set in the second process.
const AGAIN: &str = "GGAS_TEST_UCX";

/// Transports that UCX may use, one after the other.
const TRANSPORTS: [&str; 2] = ["tcp", "posix"];

/// Returns whether this process has the variables for the test. Otherwise runs the test in a
/// process that has these variables and no other variables of UCX.
fn is_prepared(test: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var_os(AGAIN).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &format!("ucx::tests::{test}"), "--nocapture", "--include-ignored"])
        .env(AGAIN, "1");
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("UCX_"))
    {
        command.env_remove(name);
    }
    let done = command.envs(variables.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    eprint!("{said}");
    assert!(done.status.success(), "{test} with {variables:?}: {said}");
    assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"), "{test} is no test");
    false
}

/// The same for each transport. In the second process returns `false` if UCX is not installed.
fn with_ucx(test: &str) -> bool {
    if std::env::var_os(AGAIN).is_none() {
        for transport in TRANSPORTS {
            let device = if transport == "tcp" { "lo" } else { "all" };
            let ours = [("UCX_TLS", transport), ("UCX_NET_DEVICES", device)];
            let variables: Vec<_> = ENVIRONMENT.iter().copied().chain(ours).collect();
            is_prepared(test, &variables);
        }
        return false;
    }
    match super::open() {
        Ok(()) => true,
        Err(why) => {
            skip(Need::Ucx, why);
            false
        }
    }
}

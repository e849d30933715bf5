//! UCX in builds that have it.

use std::process::Command;
use std::sync::{Arc, OnceLock};

use penstock_ggas::ucx::{self, ENVIRONMENT};
use penstock_ggas::{Heap, ProxyTransport};
use penstock_trial::{Need, skip};

/// Returns whether members can use UCX. A new process checks this, because UCX needs its variables
/// before a process begins.
pub fn is_here() -> bool {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    let missing = MISSING.get_or_init(|| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        prepare(&mut command, "tcp");
        command.args(["--exact", "ucx::opens_where_it_is_asked_for", "--nocapture"]);
        let asked = command.env("GGAS_TEST_ASKS_UCX", "1").output().unwrap();
        (!asked.status.success()).then(|| String::from_utf8_lossy(&asked.stderr).into_owned())
    });
    if let Some(why) = missing {
        skip(Need::Ucx, format_args!("heaps over UCX: {why}"));
    }
    missing.is_none()
}

/// Runs as the process of [`is_here`]; does nothing by itself.
#[test]
fn opens_where_it_is_asked_for() {
    if std::env::var_os("GGAS_TEST_ASKS_UCX").is_some()
        && let Err(why) = ucx::open()
    {
        eprintln!("{why}");
        std::process::exit(1);
    }
}

/// Prepares the command of a member.
pub fn prepare(command: &mut Command, transports: &str) {
    command.envs(ENVIRONMENT.iter().copied());
    command
        .env("UCX_TLS", transports)
        .env("UCX_NET_DEVICES", if transports == "tcp" { "lo" } else { "all" });
}

/// Makes a heap offer UCX.
pub fn offer(heap: &Arc<Heap>) {
    heap.offer_ucx();
}

/// Checks that a heap uses UCX for all other members.
pub fn check(heap: &Arc<Heap>, transports: &str) {
    let plan = heap.plan();
    for member in plan.members.iter().filter(|member| **member != plan.me) {
        assert_eq!(heap.transport(*member), Some(ProxyTransport::Ucx(transports.to_owned())));
    }
}

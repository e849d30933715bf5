//! Announcements and searches over this host's own network.

use std::net::{IpAddr, Ipv4Addr};

use penstock_discover::{Announcement, Found, announce, search};
use penstock_trial::wait_for;

fn announcement(name: &str, port: u16) -> Announcement {
    Announcement {
        name: name.to_owned(),
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port,
        protocol: 7,
        fingerprint: Some("ab-12".to_owned()),
    }
}

fn found(name: &str) -> Option<Found> {
    search().unwrap().into_iter().find(|it| it.name == name)
}

#[test]
fn a_daemon_is_found_while_it_is_announced() {
    let name = format!("penstock-test-{}", std::process::id());
    let announced = announce(&announcement(&name, 7_401)).unwrap();
    let mut daemon = None;
    wait_for("an answer", || {
        daemon = found(&name);
        daemon.is_some()
    });
    let found_daemon = daemon.unwrap();
    assert_eq!(found_daemon.address.to_string(), "127.0.0.1:7401");
    assert_eq!(
        (found_daemon.protocol, found_daemon.fingerprint.as_deref()),
        (Some(7), Some("ab-12"))
    );
    drop(announced);
    wait_for("the end of the answers", || found(&name).is_none());
}

//! Announcements and searches over this host's own network.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use penstock_discover::{Announcement, Found, announce, search};

fn announcement(name: &str, port: u16) -> Announcement {
    Announcement {
        name: name.to_owned(),
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port,
        protocol: 7,
        fingerprint: Some("ab-12".to_owned()),
    }
}

/// Searches until the answer is as wanted.
fn search_until(name: &str, is_there: bool) -> Option<Found> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let found = search().unwrap().into_iter().find(|it| it.name == name);
        if found.is_some() == is_there || Instant::now() > until {
            return found;
        }
    }
}

#[test]
fn a_daemon_is_found_while_it_is_announced() {
    let name = format!("penstock-test-{}", std::process::id());
    let announced = announce(&announcement(&name, 7_401)).unwrap();
    let found = search_until(&name, true).expect("not found within 20 s");
    assert_eq!(found.address.to_string(), "127.0.0.1:7401");
    assert_eq!((found.protocol, found.fingerprint.as_deref()), (Some(7), Some("ab-12")));
    drop(announced);
    assert_eq!(search_until(&name, false), None);
}

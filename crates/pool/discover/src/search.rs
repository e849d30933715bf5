//! A search for daemons.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use mdns_sd::{InterfaceId, ResolvedService, ScopedIp, ServiceDaemon, ServiceEvent};

use crate::answer::{self, Answer, FOUND_MAX, Found};
use crate::{DiscoverError, FINGERPRINT_KEY, PROTOCOL_KEY, SERVICE, patience};

/// How long the end of the library's thread may take. The thread only closes its sockets.
const END_MAX: Duration = Duration::from_secs(1);

/// Answers that a search keeps before it arranges them. A flood of answers must not fill memory,
/// and honest ones must still fit if a quarter are not of use.
const ANSWERS_MAX: usize = 4 * FOUND_MAX;

/// Asks the local networks of this host for daemons, and returns those that answer, in the order of
/// their names. Takes at most [`crate::SEARCH_MAX`].
///
/// The search runs a thread, which has ended when this function returns.
///
/// # Errors
/// Fails if the system gives the search no thread or no socket.
pub fn search() -> Result<Vec<Found>, DiscoverError> {
    let daemon = ServiceDaemon::new().map_err(DiscoverError::new)?;
    let events = daemon.browse(SERVICE).map_err(DiscoverError::new)?;
    let began = Instant::now();
    let mut newest = None;
    // By the full name of the service: an announcement may be repeated, or be withdrawn.
    let mut answers: BTreeMap<String, Found> = BTreeMap::new();
    while let Some(left) = patience::wait(began.elapsed(), newest.map(|at: Instant| at.elapsed())) {
        match events.recv_timeout(left) {
            Ok(ServiceEvent::ServiceResolved(service)) => {
                let found = answer::understand(&parts(&service));
                if let Some(found) = found
                    && answers.len() < ANSWERS_MAX
                    && answers.insert(service.fullname.clone(), found).is_none()
                {
                    newest = Some(Instant::now());
                }
            }
            Ok(ServiceEvent::ServiceRemoved(_, name)) => _ = answers.remove(&name),
            // Other events, and the end of the time.
            Ok(_) => {}
            Err(_) if events.is_disconnected() => {
                return Err(DiscoverError::new("its thread has ended"));
            }
            Err(_) => {}
        }
    }
    end(&daemon);
    Ok(answer::arrange(answers.into_values().collect()))
}

fn parts(service: &ResolvedService) -> Answer<'_> {
    let name = service.fullname.strip_suffix(SERVICE).unwrap_or_default();
    Answer {
        name: name.strip_suffix('.').unwrap_or(name),
        addresses: service.addresses.iter().filter_map(valid).collect(),
        port: service.port,
        protocol: service.txt_properties.get_property_val_str(PROTOCOL_KEY),
        fingerprint: service.txt_properties.get_property_val_str(FINGERPRINT_KEY),
    }
}

/// Returns an address if it is valid here.
fn valid(address: &ScopedIp) -> Option<IpAddr> {
    // An address of IPv4 in the form of IPv6 leads to the same place.
    let ip = address.to_ip_addr().to_canonical();
    let has_own = |card: &InterfaceId| answer::is_of_card(&ip, &card.get_addrs());
    let is_valid = !answer::is_of_network(&ip)
        || match address {
            ScopedIp::V4(four) => four.interface_ids().iter().any(has_own),
            ScopedIp::V6(six) => has_own(six.scope_id()),
            _ => false,
        };
    is_valid.then_some(ip)
}

/// Ends the library's thread, and waits for its end.
pub(crate) fn end(daemon: &ServiceDaemon) {
    // The thread's queue may be full for a moment.
    for _ in 0..10 {
        match daemon.shutdown() {
            Ok(ended) => {
                // After its time, the thread ends when it can.
                _ = ended.recv_timeout(END_MAX);
                return;
            }
            Err(mdns_sd::Error::Again) => std::thread::sleep(Duration::from_millis(1)),
            Err(_) => return,
        }
    }
}

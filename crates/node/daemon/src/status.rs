//! A daemon's status, as JSON.

use std::sync::Arc;

use penstock_link::{Address, Region, Way};
use penstock_quota::Resource;
use penstock_wire::limits;
use serde_json::{Value, json};

use crate::account::Joules;
use crate::daemon::Daemon;
use crate::groups::Groups;
use crate::message::Found;
use crate::quota::LimitsFile;
use crate::totals::Cost;
use crate::workers::{Session, Workers};
use crate::{account, confinement, whose};

impl Daemon {
    /// Returns the memory of each guest, and how much of it is in use.
    fn guest_memory(&self) -> Vec<Value> {
        let guests = self.addresses.iter().zip(&self.regions);
        let guests = guests.filter_map(|(address, region)| Some((address, region.as_ref()?)));
        let tell = |(address, region): (&Address, &Arc<Region>)| {
            json!({
                "address": address.to_string(),
                "path": region.path().display().to_string(),
                "sessions_max": region.parts(),
                "sessions": region.taken(),
            })
        };
        guests.map(tell).collect()
    }

    /// Returns figures of which none falls while the daemon runs.
    fn totals(&self, workers: &Workers, taken: &Result<Joules, String>) -> Value {
        json!({
            "sessions": workers.totals.told(),
            "refused": self.refused.told(),
            "joules": taken.as_ref().ok(),
        })
    }

    /// Returns sessions, workers, devices and limits. `asker` is the user behind a Unix socket.
    /// Only root and the user of a session learn the names of its program and its user.
    pub(crate) fn status(&self, asker: Option<u32>) -> Value {
        // Read before the lock: a file can take its time.
        let users = whose::users();
        let mut workers = self.workers();
        let clock = self.started.elapsed();
        let taken = workers.account.now();
        let held = workers.quota.ledger.lent(Resource::DeviceMemory);
        let session = |session: &Session, cost: &Cost, found: &[Found]| {
            let told = session.credentials.as_ref();
            let told = told.filter(|client| asker == Some(0) || asker == Some(client.uid));
            let cores = account::cores(&cost.cores);
            let joules = account::joules(&taken, session.mark.as_ref());
            let devices = account::devices(found, &cores, &joules, &cost.in_use);
            json!({
                "worker": session.worker,
                "client": session.client,
                "program": told.and_then(whose::program),
                "user": told.map(|client| whose::user(client, &users)),
                "transport": way(&session.way),
                "confinement": session.level.name(),
                "worker_user": session.user,
                "key": session.key.map(|key| key.to_string()),
                "seconds": session.since.elapsed().as_secs(),
                "core_seconds": cores,
                // Joules of the whole node while the client was served, including those of others.
                "joules": joules,
                "devices": devices,
                "launches": cost.done.launches,
                "moved_bytes": cost.done.moved_bytes,
                // What it has borrowed of the limit, which may be ahead of what it uses.
                "held_device_memory_bytes": held.get(&session.worker),
            })
        };
        let sessions: Vec<Value> = workers.look(session);
        json!({
            "host": crate::node::host(),
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "protocol": limits::PROTOCOL_VERSION,
            "uptime_s": clock.as_secs(),
            // When the figures were read: rates are their differences divided by that of this.
            "uptime_ms": u64::try_from(clock.as_millis()).unwrap_or(u64::MAX),
            "addresses": self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "guest_memory": self.guest_memory(),
            "sessions": sessions,
            "spare_workers": workers.spare(),
            "starting_workers": workers.starting(),
            // Whether new clients are refused because an administrator drains the daemon.
            "draining": workers.draining,
            "waiting_clients": workers.line.len(),
            "dials": self.dials.lock().total(),
            "refused": self.refused.told().values().sum::<u64>(),
            "devices": workers.devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(),
            "device_memory_bytes": workers.device_memory,
            // Whether the devices exist only in the workers' memory (`--platform null`).
            "simulated": self.simulate,
            "problem": workers.problem,
            "confinement": confinement::told(workers.confinement.as_ref(), workers.required),
            "worker_users": self.worker_users.as_ref().map(|users| users.range().to_string()),
            "control_groups": Groups::told(&workers.groups),
            "totals": self.totals(&workers, &taken),
            "quota": workers.limits_status(),
            "limits_file": self.limits.lock().as_ref().map(LimitsFile::status),
            "limits": limits_told(),
        })
    }
}

fn limits_told() -> Value {
    json!({
        "sessions": limits::SESSIONS_PER_DAEMON_MAX,
        "pending_hellos": limits::PENDING_HELLOS_MAX,
        "clients_in_line": limits::CLIENTS_IN_LINE_MAX,
        "objects_per_session": limits::OBJECTS_PER_SESSION_MAX,
        "events_per_session": limits::EVENTS_PER_SESSION_MAX,
        "staged_bytes": limits::STAGED_BYTES_MAX,
    })
}

fn way(way: &Way) -> Value {
    json!({
        "name": way.transport,
        "shares_memory": way.shares_memory,
        "guest_memory": way.guest_memory,
        "encryption": way.encryption,
        "leaves_host": way.leaves_host,
        "why_not_better": way.why_not_better,
    })
}

//! The sharing of device time between the users of the workers.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use penstock_quota::{Means, User};
use serde_json::{Value, json};

use super::{State, Worker, Workers};
use crate::message::{Found, ToWorker};
use crate::sharing::{self, Change, Seen};

impl Workers {
    /// Looks at what the users do with the devices, if it is time, and holds back who is ahead.
    pub(crate) fn share_devices(&mut self, now: Instant) {
        let is_shared = self.quota.ledger.has_several_users() && !self.ending;
        let changes = if !is_shared {
            self.sharing.rest()
        } else if self.sharing.is_due(now) {
            let seen: Vec<Seen> = self.seen().collect();
            let of_host: Vec<bool> = self.devices.iter().map(|it| it.is_of_host).collect();
            let ledger = &self.quota.ledger;
            self.sharing.look(now, &seen, &of_host, &|user| ledger.share(user))
        } else {
            Vec::new()
        };
        for change in changes {
            self.apply(&change);
        }
    }

    fn apply(&mut self, change: &Change) {
        match *change {
            Change::Priority { worker, is_low } => {
                let done = self.table.get_mut(&worker).map_or(Ok(()), |it| it.hold(worker, is_low));
                if let Err(error) = done
                    && self.sharing.complains()
                {
                    tracing::warn!(worker, is_low, %error, "the priority of a worker stays");
                }
            }
            Change::Gates { worker, gates } => {
                if let Some(worker) = self.table.get(&worker) {
                    // A worker that does not listen is ending, or does not wait for its turn.
                    _ = worker.control.send(&ToWorker::Gates(gates), None);
                }
            }
        }
    }

    /// Returns what each session does now.
    fn seen(&self) -> impl Iterator<Item = Seen> {
        self.table.iter().filter_map(|(id, worker)| {
            let State::Serving(_) = worker.state else { return None };
            let user = self.quota.ledger.user(*id)?.clone();
            let devices = worker.usage.as_ref().map(|usage| usage.all(self.devices.len()));
            let cores = penstock_energy::cores::of_process(*id).unwrap_or_default();
            let devices = devices.unwrap_or_default();
            Some(Seen { worker: *id, user, devices, cores })
        })
    }

    /// Returns the device time of each user that has sessions, of these sessions.
    fn device_times(&self) -> BTreeMap<User, Duration> {
        let mut times: BTreeMap<User, Duration> = BTreeMap::new();
        for seen in self.seen() {
            let time = times.entry(seen.user).or_default();
            let own = |(found, (_, used)): (&Found, &(bool, Duration))| {
                if found.is_of_host { Duration::ZERO } else { *used }
            };
            *time += self.devices.iter().zip(&seen.devices).map(own).sum::<Duration>();
            if self.devices.iter().any(|it| it.is_of_host) {
                *time += seen.cores;
            }
        }
        times
    }

    /// Returns the users' limits, what they hold, and their device time, as JSON.
    pub(crate) fn limits_status(&self) -> Value {
        let mut status = self.quota.status(&self.groups);
        let row = |(user, time): (User, Duration)| {
            json!({
                "scope": "user",
                "user": user.to_string(),
                "limit": DEVICE_TIME,
                "unit": "seconds",
                "held": time.as_secs(),
                "max": null,
                "set_by": null,
            })
        };
        let times = self.device_times().into_iter().map(row);
        if let Some(rows) = status.get_mut("rows").and_then(Value::as_array_mut) {
            rows.extend(times);
        }
        if let Some(ways) = status.get_mut("enforcement").and_then(Value::as_array_mut) {
            let how = how(self.sharing.means());
            ways.push(json!({ "limit": DEVICE_TIME, "enforced": true, "how": how }));
        }
        status
    }
}

impl Worker {
    /// Holds the session back on the host's cores, or lets it go on: by the share of its control
    /// group, or else by the priority of its processes.
    fn hold(&mut self, id: u32, is_low: bool) -> io::Result<()> {
        if let Some(group) = &mut self.group
            && group.hold(is_low)?
        {
            return Ok(());
        }
        Ok(sharing::set_priority(id, is_low)?)
    }
}

/// Name of the users' device time in a status.
const DEVICE_TIME: &str = "device_time";

/// Returns how device time is shared on this node.
fn how(means: Means) -> &'static str {
    match means {
        Means::Priority => {
            "shared between users by device_share. Core-seconds of the workers count for devices \
             of the host's cores, where a user that is ahead gets the lowest priority, or a 68th \
             of the weight of its control groups. On other devices its sessions begin no launches \
             for a while, and the time is what workers say"
        }
        Means::Turns => {
            "shared between users by device_share. A user that is ahead begins no launches for a \
             while. Devices of the host's cores are shared more evenly if the daemon may raise \
             priorities (LimitNICE=+0 in its unit). The time of other devices is what workers say"
        }
    }
}

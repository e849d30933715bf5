//! Encrypted links through a daemon and its workers.

mod common;
#[path = "common/daemon.rs"]
mod daemon;

use std::fs;
use std::path::PathBuf;

use common::{Client, Devices};
use daemon::{Daemon, is_alive, works};
use penstock_link::{
    AUTHORIZED_CLIENTS_FILE, Address, AuthorizedClients, EncryptionOptions, Key, Keys, LinkError,
    Pins, PublicKey, Rule,
};
use penstock_trial::wait_for;
use penstock_wire::calls::to_worker;
use penstock_wire::describe::NodeDescription;
use penstock_wire::hello::Verdict;
use penstock_wire::{Id, Status, TimesOf, U32, U64, frame};

const DEVICES: Devices = Devices::Simulated;

/// Keys of one side, in a folder of its own.
struct Keyring(PathBuf);

impl Keyring {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("penstockd-tls-{}-{name}", std::process::id()));
        _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("penstock")).unwrap();
        Self(path)
    }

    fn keys(&self, rule: Rule, pool: Option<&Keyring>) -> Keys {
        let options = EncryptionOptions { rule, folder: Some(self.0.join("penstock")) };
        let pool = pool.map(Keyring::pool_key);
        Keys::load(pool.as_deref(), &options, Pins::File).unwrap()
    }

    fn public(&self) -> PublicKey {
        self.keys(Rule::Always, None).encryption.unwrap().public().unwrap()
    }

    /// Returns the file with the pool's key, which is made at the first call.
    fn pool_key(&self) -> PathBuf {
        let path = self.0.join("penstock/key");
        if !path.exists() {
            Key::create(&path).unwrap();
        }
        path
    }

    /// Starts a daemon with these keys, on a Unix socket and a TCP port.
    fn serve(&self, name: &str, rule: &str) -> Daemon {
        self.serve_on(DEVICES, name, rule)
    }

    /// Does the same; with real devices, the daemon has two of PoCL's.
    fn serve_on(&self, devices: Devices, name: &str, rule: &str) -> Daemon {
        let key = self.pool_key();
        let environment = [
            ("PENSTOCK_ENCRYPTION", rule),
            ("XDG_CONFIG_HOME", self.0.to_str().unwrap()),
            ("POCL_DEVICES", "pthread pthread"),
        ];
        let limits = self.limits();
        let options = ["--listen", "tcp:127.0.0.1:0", "--key", key.to_str().unwrap()];
        let limits = ["--limits", limits.to_str().unwrap()].into_iter();
        let limits = limits.filter(|_| self.limits().exists());
        let options: Vec<&str> = options.into_iter().chain(limits).collect();
        Daemon::start_on(devices, name, &options, &environment)
    }

    /// Returns the file of limits, which the daemon reads if there is one.
    fn limits(&self) -> PathBuf {
        self.0.join("limits.toml")
    }
}

impl Drop for Keyring {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_worker_serves_an_encrypted_link() {
    let (ours, theirs) = (Keyring::new("serve-client"), Keyring::new("serve-node"));
    let daemon = theirs.serve("tls-serve", "always");
    let keys = ours.keys(Rule::Always, Some(&theirs));
    let (mut client, _) = daemon.open(&keys, 1).unwrap();
    works(&mut client);
    let context = client.context();
    let queue = client.queue(context, 0);
    let bytes: Vec<u8> = (0..20_000_003_u32).map(|at| (at % 251) as u8).collect();
    let mem = client.buffer(context, bytes.len() as u64);
    client.write(queue, mem, 0, &bytes);
    assert!(client.read(queue, mem, bytes.len() as u64) == bytes);
    let status = daemon.status();
    let session = &status["sessions"][0];
    assert_eq!(session["transport"]["encryption"], "AES-128-GCM", "{session}");
    assert_eq!(session["key"], ours.public().to_string(), "{session}");
}

#[test]
fn a_daemon_refuses_the_wrong_kind_of_link_in_words() {
    let (ours, theirs) = (Keyring::new("kinds-client"), Keyring::new("kinds-node"));
    let pool = Some(&theirs);
    let strict = theirs.serve("tls-strict", "always");
    let refused = strict.open(&ours.keys(Rule::Never, pool), 1).err().unwrap();
    assert!(
        matches!(refused, LinkError::Refused { verdict: Verdict::NeedsEncryption, .. }),
        "{refused}"
    );
    // The Unix socket is as before.
    works(&mut strict.client().0);
    let plain = theirs.serve("tls-plain", "never");
    let refused = plain.open(&ours.keys(Rule::Always, pool), 1).err().unwrap();
    assert!(refused.to_string().contains("does not speak TLS"), "{refused}");
    works(&mut plain.open(&ours.keys(Rule::Never, pool), 1).unwrap().0);
    let either = theirs.serve("tls-either", "remote");
    for rule in Rule::ALL {
        works(&mut either.open(&ours.keys(rule, pool), 1).unwrap().0);
    }
}

#[test]
fn a_revoked_client_loses_its_sessions_and_does_not_come_back() {
    let (ours, theirs) = (Keyring::new("revoke-client"), Keyring::new("revoke-node"));
    let others = Keyring::new("revoke-other");
    let daemon = theirs.serve("tls-revoke", "always");
    let keys = ours.keys(Rule::Always, Some(&theirs));
    let (mut client, description) = daemon.open(&keys, 1).unwrap();
    works(&mut client);
    let (mut other, _) = daemon.open(&others.keys(Rule::Always, Some(&theirs)), 1).unwrap();
    works(&mut other);
    let list = theirs.0.join("penstock").join(AUTHORIZED_CLIENTS_FILE);
    let clients = AuthorizedClients::load(&list).unwrap();
    let name = clients.with_key(&ours.public()).unwrap().name.clone();
    AuthorizedClients::revoke(&list, &name).unwrap().unwrap();
    wait_for("the end of a revoked session", || !is_alive(description.worker));
    client.until_end();
    let refused = daemon.open(&keys, 1).err().unwrap();
    assert!(matches!(refused, LinkError::Refused { verdict: Verdict::Revoked, .. }), "{refused}");
    // The other client is not concerned.
    works(&mut other);
}

#[test]
fn clients_of_a_quota_share_its_limits() {
    let (ours, theirs) = (Keyring::new("quota-client"), Keyring::new("quota-node"));
    let (others, lost) = (Keyring::new("quota-other"), Keyring::new("quota-lost"));
    fs::write(theirs.limits(), "[user.\"key:small\"]\nsessions = 1\n").unwrap();
    let lines = [("anna", &ours, "small"), ("ben", &others, "small"), ("eve", &lost, "large")]
        .map(|(name, ring, quota)| format!("{name} {} quota={quota}\n", ring.public()));
    theirs.keys(Rule::Always, None);
    fs::write(theirs.0.join("penstock").join(AUTHORIZED_CLIENTS_FILE), lines.concat()).unwrap();
    let daemon = theirs.serve("tls-quota", "always");
    let open = |ring: &Keyring| daemon.open(&ring.keys(Rule::Always, Some(&theirs)), 1);
    let (mut client, _) = open(&ours).unwrap();
    works(&mut client);
    let rows = daemon.status()["quota"]["rows"].clone();
    let is_it = |row: &&serde_json::Value| row["user"] == "key:small" && row["held"] == 1;
    assert!(rows.as_array().unwrap().iter().any(|row| is_it(&row)), "{rows}");
    let refused = open(&others).map(drop).unwrap_err();
    let LinkError::OverLimit { why, .. } = &refused else { panic!("{refused}") };
    assert!(why.contains("sessions of user key:small is 1"), "{why}");
    // Nothing limits the quota `large`.
    let refused = open(&lost).map(drop).unwrap_err();
    assert!(
        matches!(refused, LinkError::Refused { verdict: Verdict::Restricted, .. }),
        "{refused}"
    );
    drop(client);
    wait_for("the end of the session", || daemon.sessions() == 0);
    works(&mut open(&others).unwrap().0);
}

/// Makes a queue of a device in a context of devices. Returns what a finish of it says.
fn finish_on(client: &mut Client, devices: &[u32], device: u32) -> Status {
    let (context, queue) = (client.id(), client.id());
    let call = to_worker::CreateContext { context, platform: U32::ZERO };
    client.send(call, &[], &frame::encode(&devices.to_vec()));
    let (properties, times) = (U64::new(0), U32::new(TimesOf::Commands as u32));
    let (device, size) = (U32::new(device), U32::ZERO);
    let call = to_worker::CreateQueue { queue, context, device, properties, size, times };
    client.send(call, &[], &[]);
    client.finish(queue)
}

#[test]
fn a_client_uses_only_the_devices_of_its_line() {
    let (ours, theirs) = (Keyring::new("devices-client"), Keyring::new("devices-node"));
    let others = Keyring::new("devices-other");
    let line = |name: &str, ring: &Keyring, more| format!("{name} {}{more}\n", ring.public());
    let lines = line("anna", &ours, " devices=1,7") + &line("ben", &others, "");
    theirs.keys(Rule::Always, None);
    fs::write(theirs.0.join("penstock").join(AUTHORIZED_CLIENTS_FILE), lines).unwrap();
    let daemon = theirs.serve_on(Devices::Real, "tls-devices", "always");
    let open = |ring: &Keyring| daemon.open(&ring.keys(Rule::Always, Some(&theirs)), 1).unwrap();
    let indices = |node: &NodeDescription| -> Vec<u32> {
        node.platforms.iter().flat_map(|it| &it.devices).map(|it| it.index).collect()
    };
    let (mut free, all) = open(&others);
    let all = indices(&all);
    assert!(all.len() >= 2, "{all:?}");
    let (mut bound, offered) = open(&ours);
    assert_eq!(indices(&offered), [1]);
    // A platform keeps its number.
    let whole = daemon.client().1;
    assert_eq!(offered.platforms.len(), whole.platforms.len());
    assert_eq!(finish_on(&mut bound, &[1], 1), Status::OK);
    for (devices, device) in [(&[0][..], 0), (&[0, 1], 1), (&[1], 0), (&[7], 7), (&[], 1)] {
        let status = finish_on(&mut bound, devices, device);
        assert_ne!(status, Status::OK, "devices {devices:?}, queue on {device}");
    }
    // No part of a forbidden device, and its sensors and clocks are not told.
    let parts = frame::encode(&vec![0x1086_i64, 1, 0]);
    let device = U32::ZERO;
    let call = to_worker::CreateSubDevices { request: Id::NONE, device };
    assert_eq!(bound.request(call, &parts).0, Status::INVALID_DEVICE);
    let call = to_worker::DeviceTimer { request: Id::NONE, device };
    assert_eq!(bound.request(call, &[]).0, Status::INVALID_DEVICE);
    // Another client of the same daemon is not concerned.
    assert_eq!(finish_on(&mut free, &[0, 1], 0), Status::OK);
}

#[test]
fn a_client_that_vanishes_inside_a_record_ends_its_session() {
    use std::io::{Read as _, Write as _};
    let (ours, theirs) = (Keyring::new("cut-client"), Keyring::new("cut-node"));
    let daemon = theirs.serve("tls-cut", "always");
    let port = daemon.addresses[1].to_string().rsplit_once(':').unwrap().1.parse().unwrap();
    // Somebody in the middle, who passes 100,000 bytes on and then hangs up.
    let middle = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", middle.local_addr().unwrap());
    let address: Address = address.parse().unwrap();
    let relay = std::thread::spawn(move || {
        let (mut client, _) = middle.accept().unwrap();
        let mut node = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut back, mut to_client) = (node.try_clone().unwrap(), client.try_clone().unwrap());
        let answers = std::thread::spawn(move || _ = std::io::copy(&mut back, &mut to_client));
        let (mut passed, mut buffer) = (0, [0; 4096]);
        while passed < 100_000 {
            let bytes = client.read(&mut buffer).unwrap();
            node.write_all(&buffer[..bytes]).unwrap();
            passed += bytes;
        }
        _ = node.shutdown(std::net::Shutdown::Both);
        _ = client.shutdown(std::net::Shutdown::Both);
        _ = answers.join();
    });
    let keys = ours.keys(Rule::Always, Some(&theirs));
    let (client, description) = Daemon::open_at(&address, &keys).unwrap();
    let call = to_worker::InitBuffer { mem: Id::new(1), offset: U64::new(0) };
    // More than the one in the middle passes on.
    _ = client.sender.send(&call, &[], &vec![0; 1 << 20]);
    relay.join().unwrap();
    wait_for("the end of a cut session", || !is_alive(description.worker));
    wait_for("the daemon's note of it", || daemon.sessions() == 0);
}

//! Encrypted links: who is let in, which node is believed, and what is said to the others.

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use common::soon;
use penstock_link::{
    AUTHORIZED_CLIENTS_FILE, Accepted, AuthorizedClient, AuthorizedClients, ClientOptions,
    ENROLLED_CLIENTS_MAX, EncryptionOptions, Enrolled, IDENTITY_FILE, KNOWN_NODES_FILE, Key, Keys,
    KnownNodes, LinkError, Opened, Pins, PublicKey, Rule, Stream, Trust, accept_hello, open_on,
};
use penstock_wire::hello::{Role, Verdict};

const NODE: &str = "tcp:node7:7367";

/// Folder of one side's keys, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("penstock-tls-{}-{name}", std::process::id()));
        _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn keys(&self, rule: Rule, pool: Option<u8>) -> Keys {
        self.keys_with(rule, pool, Pins::File)
    }

    fn keys_with(&self, rule: Rule, pool: Option<u8>, pins: Pins) -> Keys {
        let options = EncryptionOptions { rule, folder: Some(self.0.clone()) };
        let keys = Keys::load(None, &options, pins).unwrap();
        Keys { pool: pool.map(|byte| Key::from_bytes(&[byte; 32])), ..keys }
    }

    fn public(&self) -> PublicKey {
        self.keys(Rule::Always, None).encryption.unwrap().public().unwrap()
    }

    fn pin(&self, key: PublicKey) {
        KnownNodes::pin(&self.file(KNOWN_NODES_FILE), NODE, key).unwrap();
    }

    fn allow(&self, name: &str, key: PublicKey) {
        let client = AuthorizedClient { name: name.into(), key, options: ClientOptions::default() };
        AuthorizedClients::allow(&self.file(AUTHORIZED_CLIENTS_FILE), client).unwrap();
    }

    fn clients(&self) -> AuthorizedClients {
        AuthorizedClients::load(&self.file(AUTHORIZED_CLIENTS_FILE)).unwrap()
    }

    fn pinned(&self) -> Option<PublicKey> {
        KnownNodes::load(&self.file(KNOWN_NODES_FILE)).unwrap().key_of(NODE)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the folders of a client and a node.
fn folders(name: &str) -> (Folder, Folder) {
    (Folder::new(&format!("{name}-client")), Folder::new(&format!("{name}-node")))
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

fn stream(socket: TcpStream) -> Stream {
    Stream::from_fd(OwnedFd::from(socket)).unwrap()
}

fn accept<'a>(socket: TcpStream, trust: impl Into<Trust<'a>>) -> Result<Accepted, LinkError> {
    accept_hello(stream(socket), trust, &|_| false, soon())
}

const KNOWN: Enrolled = Enrolled::Known { quota: None, devices: None };

type Met = (Result<Opened, LinkError>, Result<(Stream, Option<Enrolled>), LinkError>);

/// Runs both sides of a hello.
fn meet(ours: &Keys, theirs: &Keys) -> Met {
    let (one, other) = pair();
    thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let accepted = accept(other, theirs)?;
            assert_eq!((accepted.role, accepted.ticket), (Role::Client, [5; 32]));
            let client = accepted.client.clone();
            if let Some(known) = &client {
                assert_eq!(known.key, ours.encryption.as_ref().unwrap().public().unwrap());
            }
            assert_eq!(accepted.way().encryption.is_some(), client.is_some());
            let stream = accepted.finish(Verdict::Welcome)?;
            Ok((stream, client.map(|known| known.enrolled)))
        });
        let opened = open_on(stream(one), NODE, Role::Client, Some([5; 32]), ours, soon());
        (opened, accepting.join().unwrap())
    })
}

fn works((opened, accepted): Met) -> Option<Enrolled> {
    let (opened, (accepted, enrolled)) = (opened.unwrap(), accepted.unwrap());
    opened.stream.write_all_until(b"after", soon()).unwrap();
    let mut heard = [0; 5];
    accepted.read_exact_until(&mut heard, soon()).unwrap();
    assert_eq!(&heard, b"after");
    enrolled
}

fn refused((opened, _): Met) -> LinkError {
    opened.map(|_| ()).unwrap_err()
}

#[test]
fn the_pools_key_makes_both_sides_known_and_is_not_needed_again() {
    let (client, node) = folders("enrol");
    let always = Rule::Always;
    let first = works(meet(&client.keys(always, Some(1)), &node.keys(always, Some(1))));
    assert_eq!(first, Some(Enrolled::Now));
    assert_eq!(client.pinned(), Some(node.public()));
    assert_eq!(node.clients().iter().count(), 1);
    assert!(node.clients().with_key(&client.public()).is_some());
    // Neither side has the pool's key any more, or they have different ones.
    for (ours, theirs) in [(None, None), (Some(1), Some(2)), (Some(1), None), (None, Some(1))] {
        let again = works(meet(&client.keys(always, ours), &node.keys(always, theirs)));
        assert_eq!(again, Some(KNOWN), "{ours:?} {theirs:?}");
    }
}

/// Stands between a client and a node. Passes on all that the client says. Passes on what the node
/// says before the client has finished the handshake, and the rest only when the node `has_met` the
/// client.
fn hold_back(mut client: TcpStream, mut node: TcpStream, has_met: &AtomicBool, ends: &AtomicBool) {
    client.set_nonblocking(true).unwrap();
    node.set_nonblocking(true).unwrap();
    let (mut has_heard, mut holds) = (false, false);
    let mut bytes = [0; 16 << 10];
    while !ends.load(Relaxed) {
        if let Ok(count) = client.read(&mut bytes) {
            holds |= has_heard;
            _ = node.write_all(&bytes[..count]);
        }
        if (!holds || has_met.load(Relaxed))
            && let Ok(count) = node.read(&mut bytes)
        {
            has_heard = true;
            _ = client.write_all(&bytes[..count]);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Ends the one in the middle, also if a check fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A node that is pinned has all that it needs with the end of the handshake: it decides before the
/// client has heard a word of the hello.
#[test]
fn a_client_that_knows_the_node_says_all_at_once() {
    let (client, node) = folders("at-once");
    client.pin(node.public());
    let keys = [&client, &node].map(|it| it.keys(Rule::Always, Some(1)));
    // The first time, the node writes the client down.
    for enrolled in [Enrolled::Now, KNOWN] {
        let ((one, near), (far, other)) = (pair(), pair());
        let (has_met, ends) = (AtomicBool::new(false), AtomicBool::new(false));
        let met = thread::scope(|scope| {
            scope.spawn(|| hold_back(near, far, &has_met, &ends));
            let _ends = Ends(&ends);
            let accepting = scope.spawn(|| {
                let accepted = accept(other, &keys[1])?;
                let enrolled = accepted.client.as_ref().map(|known| known.enrolled.clone());
                assert_eq!(accepted.ticket, [5; 32]);
                let stream = accepted.finish(Verdict::Welcome)?;
                has_met.store(true, Relaxed);
                Ok((stream, enrolled))
            });
            let opened = open_on(stream(one), NODE, Role::Client, Some([5; 32]), &keys[0], soon());
            let accepted = accepting.join().unwrap();
            assert!(has_met.load(Relaxed), "the node waits for the client: {opened:?}");
            works((opened, accepted))
        });
        assert_eq!(met, Some(enrolled));
    }
}

#[test]
fn keys_that_people_have_entered_need_no_pool_key() {
    let (client, node) = folders("by-hand");
    client.pin(node.public());
    node.allow("anna", client.public());
    let met = meet(&client.keys(Rule::Always, None), &node.keys(Rule::Always, None));
    assert_eq!(works(met), Some(KNOWN));
}

#[test]
fn another_pools_key_lets_nobody_in() {
    let (client, node) = folders("other-pool");
    let error =
        refused(meet(&client.keys(Rule::Always, Some(1)), &node.keys(Rule::Always, Some(2))));
    assert!(matches!(error, LinkError::WrongKey { .. }), "{error}");
    assert_eq!((client.pinned(), node.clients().iter().count()), (None, 0));
    // The node is known, and does not know the client.
    client.pin(node.public());
    let error =
        refused(meet(&client.keys(Rule::Always, Some(1)), &node.keys(Rule::Always, Some(2))));
    let LinkError::Refused { verdict: Verdict::WrongKey, .. } = error else { panic!("{error}") };
    assert_eq!(node.clients().iter().count(), 0);
}

#[test]
fn a_node_that_is_neither_known_nor_in_the_pool_gets_nothing() {
    let (client, node) = folders("unknown-node");
    node.allow("anna", client.public());
    for (ours, theirs) in [(None, Some(1)), (Some(1), None), (None, None)] {
        let error =
            refused(meet(&client.keys(Rule::Always, ours), &node.keys(Rule::Always, theirs)));
        let LinkError::UnknownNode { key, .. } = &error else { panic!("{error}") };
        assert_eq!(*key, node.public());
        let text = error.to_string();
        assert!(text.contains(&format!("penstock key allow {NODE} {key}")), "{text}");
        assert_eq!(client.pinned(), None);
    }
}

#[test]
fn a_client_that_is_neither_known_nor_in_the_pool_is_refused() {
    let (client, node) = folders("unknown-client");
    client.pin(node.public());
    for (ours, theirs) in [(None, Some(1)), (Some(1), None), (None, None)] {
        let error =
            refused(meet(&client.keys(Rule::Always, ours), &node.keys(Rule::Always, theirs)));
        assert!(
            matches!(error, LinkError::Refused { verdict: Verdict::NotEnrolled, .. }),
            "{error}"
        );
        assert_eq!(node.clients().iter().count(), 0);
    }
}

#[test]
fn a_node_whose_key_has_changed_is_refused_with_file_and_line() {
    let (client, node) = folders("changed");
    let other = Folder::new("changed-other");
    client.pin(other.public());
    let error =
        refused(meet(&client.keys(Rule::Always, Some(1)), &node.keys(Rule::Always, Some(1))));
    let LinkError::Pin(_) = &error else { panic!("{error}") };
    let text = error.to_string();
    for part in ["has changed", "known_nodes, line 1", &format!("penstock key revoke {NODE}")] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(client.pinned(), Some(other.public()), "the pin was replaced");
    assert_eq!(node.clients().iter().count(), 0, "the client said more than its handshake");
}

#[test]
fn a_revoked_client_is_refused_although_it_has_the_pools_key() {
    let (client, node) = folders("revoked");
    let keys = || (client.keys(Rule::Always, Some(1)), node.keys(Rule::Always, Some(1)));
    let (ours, theirs) = keys();
    works(meet(&ours, &theirs));
    let encryption = theirs.encryption.as_ref().unwrap();
    assert!(!encryption.is_revoked(&client.public()).unwrap());
    let name = node.clients().iter().next().unwrap().name.clone();
    AuthorizedClients::revoke(&node.file(AUTHORIZED_CLIENTS_FILE), &name).unwrap().unwrap();
    assert!(encryption.is_revoked(&client.public()).unwrap());
    let error = refused(meet(&ours, &theirs));
    assert!(matches!(error, LinkError::Refused { verdict: Verdict::Revoked, .. }), "{error}");
}

#[test]
fn a_client_with_limits_that_nothing_enforces_is_refused() {
    let (client, node) = folders("limits");
    let line = format!("anna {} devices=gpu\n", client.public());
    fs::write(node.file(AUTHORIZED_CLIENTS_FILE), line).unwrap();
    let error =
        refused(meet(&client.keys(Rule::Always, Some(1)), &node.keys(Rule::Always, Some(1))));
    assert!(matches!(error, LinkError::Refused { verdict: Verdict::Restricted, .. }), "{error}");
}

#[test]
fn the_list_names_the_quota_and_the_devices_of_a_client() {
    let (client, node) = folders("quota");
    let line = format!("anna {} quota=small devices=1,3\n", client.public());
    fs::write(node.file(AUTHORIZED_CLIENTS_FILE), line).unwrap();
    let met = meet(&client.keys(Rule::Always, Some(1)), &node.keys(Rule::Always, Some(1)));
    let devices = Some(vec![1, 3]);
    assert_eq!(works(met), Some(Enrolled::Known { quota: Some("small".to_owned()), devices }));
}

#[test]
fn a_list_that_is_not_understood_lets_nobody_in() {
    let (client, node) = folders("broken-list");
    fs::write(node.file(AUTHORIZED_CLIENTS_FILE), "anna\n").unwrap();
    let (opened, accepted) =
        meet(&client.keys(Rule::Always, Some(1)), &node.keys(Rule::Always, Some(1)));
    assert!(opened.is_err());
    let error = accepted.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("authorized_clients, line 1"), "{error}");
}

#[test]
fn a_list_that_is_full_takes_no_more_and_the_pools_key_still_counts() {
    let (client, node) = folders("full-list");
    let key = |number: usize| {
        let mut bytes = [7; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        PublicKey::from_bytes(bytes)
    };
    let lines: String =
        (0..ENROLLED_CLIENTS_MAX).map(|number| format!("c{number} {}\n", key(number))).collect();
    fs::write(node.file(AUTHORIZED_CLIENTS_FILE), lines).unwrap();
    works(meet(&client.keys(Rule::Always, Some(1)), &node.keys(Rule::Always, Some(1))));
    assert_eq!(node.clients().iter().count(), ENROLLED_CLIENTS_MAX);
}

#[test]
fn a_side_that_keeps_no_pins_wants_the_proof_each_time() {
    let (client, node) = folders("no-pins");
    let ours = |pool| client.keys_with(Rule::Always, pool, Pins::Never);
    works(meet(&ours(Some(1)), &node.keys(Rule::Always, Some(1))));
    assert_eq!(client.pinned(), None);
    let error = refused(meet(&ours(Some(1)), &node.keys(Rule::Always, None)));
    assert!(matches!(error, LinkError::UnknownNode { .. }), "{error}");
}

#[test]
fn a_plain_client_hears_that_the_node_needs_encryption() {
    let (client, node) = folders("needs");
    let plain = Keys { encryption: None, ..client.keys(Rule::Always, Some(1)) };
    let (opened, accepted) = meet(&plain, &node.keys(Rule::Always, Some(1)));
    let text = opened.map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("accepts only encrypted links"), "{text}");
    let verdict = accepted.map(|_| ()).unwrap_err();
    assert!(
        matches!(verdict, LinkError::Turned { verdict: Verdict::NeedsEncryption, .. }),
        "{verdict}"
    );
}

#[test]
fn a_client_that_wants_encryption_never_falls_back() {
    let (client, node) = folders("no-fallback");
    let plain = Keys { encryption: None, ..node.keys(Rule::Always, Some(1)) };
    let (opened, accepted) = meet(&client.keys(Rule::Always, Some(1)), &plain);
    let text = opened.map(|_| ()).unwrap_err().to_string();
    // What happened, where, and what to do.
    for part in [NODE, "does not speak TLS", "Set PENSTOCK_ENCRYPTION=remote there"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let verdict = accepted.map(|_| ()).unwrap_err();
    assert!(matches!(verdict, LinkError::Turned { verdict: Verdict::PlainOnly, .. }), "{verdict}");
}

#[test]
fn what_a_client_says_before_the_handshake_is_no_plain_hello() {
    let client = Folder::new("first-bytes");
    let keys = client.keys(Rule::Always, Some(1));
    let (one, mut other) = pair();
    other.set_read_timeout(Some(common::patience())).unwrap();
    thread::scope(|scope| {
        let opening =
            scope.spawn(|| open_on(stream(one), NODE, Role::Client, None, &keys, soon()).is_ok());
        let mut record = vec![0; 5];
        other.read_exact(&mut record).unwrap();
        assert_eq!(record[..2], [22, 3]);
        let bytes = usize::from(u16::from_be_bytes([record[3], record[4]]));
        record.resize(5 + bytes, 0);
        other.read_exact(&mut record[5..]).unwrap();
        assert!(!record.windows(8).any(|part| part == b"PENSTOCK"));
        // An answer in plain text, as somebody in between would send it.
        other.write_all(&[b"PENSTOCK".as_slice(), &[0; 172]].concat()).unwrap();
        assert!(!opening.join().unwrap());
        // Nothing but the alert follows.
        let mut rest = Vec::new();
        _ = other.read_to_end(&mut rest);
        assert!(!rest.windows(8).any(|part| part == b"PENSTOCK"), "{rest:?}");
    });
}

#[test]
fn on_this_host_a_listener_takes_both_kinds_and_a_client_chooses_plain() {
    let (client, node) = folders("both");
    let theirs = node.keys(Rule::Remote, Some(1));
    for (rule, encrypted) in [(Rule::Always, true), (Rule::Remote, false), (Rule::Never, false)] {
        let enrolled = works(meet(&client.keys(rule, Some(1)), &theirs));
        assert_eq!(enrolled.is_some(), encrypted, "{rule:?}");
    }
}

#[test]
fn a_peer_that_stops_inside_the_handshake_gets_no_more_than_its_time() {
    let (client, node) = folders("stops");
    let theirs = node.keys(Rule::Always, Some(1));
    for bytes in [1, 4, 10, 30] {
        let (mut one, other) = pair();
        one.write_all(&[22, 3, 1, 1, 0, 1, 0, 0, 252, 3].repeat(3)[..bytes]).unwrap();
        let limit = Instant::now() + Duration::from_millis(100);
        let accepted = common::in_time("a handshake", || {
            accept_hello(stream(other), &theirs, &|_| false, limit)
        });
        assert!(matches!(accepted, Err(LinkError::HelloTimeout { .. })), "{bytes}: {accepted:?}");
    }
    let (one, _other) = pair();
    let limit = Instant::now() + Duration::from_millis(100);
    let ours = client.keys(Rule::Always, Some(1));
    let opened = open_on(stream(one), NODE, Role::Client, None, &ours, limit);
    assert!(matches!(opened, Err(LinkError::HelloTimeout { .. })), "{opened:?}");
}

#[test]
fn garbage_instead_of_a_handshake_is_refused() {
    let node = Folder::new("garbage");
    let theirs = node.keys(Rule::Always, Some(1));
    for seed in 0..40_u8 {
        let (mut one, other) = pair();
        let mut bytes = common::pattern(seed.into(), 3_000);
        bytes[..5].copy_from_slice(&[22, 3, 1, seed, 200]);
        one.write_all(&bytes).unwrap();
        // Random bytes can announce more than they are.
        one.shutdown(std::net::Shutdown::Write).unwrap();
        let accepted = accept_hello(stream(other), &theirs, &|_| false, soon());
        let is_refused = matches!(accepted, Err(LinkError::Handshake { .. } | LinkError::Closed));
        assert!(is_refused, "{accepted:?}");
    }
}

/// The client's first calls may be in the same packet as the end of its hello. They belong to the
/// process that takes over.
#[test]
fn calls_behind_the_hello_are_for_the_process_that_takes_over() {
    let (client, node) = folders("behind");
    let (ours, theirs) = (client.keys(Rule::Always, Some(1)), node.keys(Rule::Always, Some(1)));
    let (one, other) = pair();
    thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let accepted = accept(other, &theirs).unwrap();
            let stream = accepted.finish(Verdict::Welcome).unwrap();
            // Time for the calls to come.
            thread::sleep(Duration::from_millis(50));
            let note = stream.note().unwrap();
            let fd = rustix::io::fcntl_dupfd_cloexec(&stream, 0).unwrap();
            drop(stream);
            let worker = Stream::resume(fd, &note).unwrap();
            assert_eq!(worker.encryption(), Some("AES-128-GCM"));
            let mut heard = vec![0; 300_000];
            worker.read_exact_until(&mut heard, soon()).unwrap();
            worker.write_all_until(b"served", soon()).unwrap();
            heard
        });
        let opened =
            open_on(stream(one), NODE, Role::Client, Some([5; 32]), &ours, soon()).unwrap();
        let calls = common::pattern(3, 300_000);
        opened.stream.write_all_until(&calls, soon()).unwrap();
        let mut heard = [0; 6];
        opened.stream.read_exact_until(&mut heard, soon()).unwrap();
        assert_eq!(&heard, b"served");
        assert!(accepting.join().unwrap() == calls);
    });
}

#[test]
fn an_identity_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let (client, node) = folders("readable");
    _ = client.public();
    let path: &Path = &client.file(IDENTITY_FILE);
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    let error =
        refused(meet(&client.keys(Rule::Always, Some(1)), &node.keys(Rule::Always, Some(1))));
    assert!(error.to_string().contains("chmod 600"), "{error}");
}

#[test]
fn without_a_folder_for_keys_nothing_is_sent() {
    let options = EncryptionOptions { rule: Rule::Always, folder: None };
    let keys = Keys::load(None, &options, Pins::File).unwrap();
    let keys = Keys { pool: Some(Key::from_bytes(&[1; 32])), ..keys };
    let (one, mut other) = pair();
    let opened = open_on(stream(one), NODE, Role::Client, None, &keys, soon());
    assert!(matches!(opened, Err(LinkError::NoFolder)), "{opened:?}");
    let mut heard = Vec::new();
    other.read_to_end(&mut heard).unwrap();
    assert!(heard.is_empty());
}

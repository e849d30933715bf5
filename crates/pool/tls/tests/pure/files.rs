//! The files: identities, known nodes, authorized clients.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::thread;

use penstock_tls::{
    AuthorizedClients, Client, ClientOptions, Devices, FileError, Identity, IdentityError,
    KnownNodes, LineError, ListError, Pin, PinError, PublicKey,
};
use penstock_trial::Folder;
use proptest::prelude::*;

fn key(byte: u8) -> PublicKey {
    PublicKey::from_bytes([byte; 32])
}

#[test]
fn an_identity_is_made_once_and_for_its_owner_alone() {
    let folder = Folder::new("tls-identity");
    let path = folder.file("deep/identity");
    assert!(matches!(Identity::load(&path), Err(IdentityError::File(_))));
    let made = Identity::load_or_create(&path).unwrap();
    let again = Identity::load_or_create(&path).unwrap();
    assert_eq!(made.public(), again.public());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o7777, 0o700);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2Vw"), "{text}");
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "a draft is left");
    let shown = format!("{made:?}");
    assert!(shown.starts_with("Identity(ed25519:") && shown.ends_with(", ..)"), "{shown}");
}

#[test]
fn processes_that_make_an_identity_at_once_get_the_same_one() {
    let folder = Folder::new("tls-race");
    for round in 0..20 {
        let path = folder.file(&format!("identity-{round}"));
        let keys: Vec<PublicKey> = thread::scope(|scope| {
            let all: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| Identity::load_or_create(&path).unwrap().public()))
                .collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        assert_eq!(Identity::load(&path).unwrap().public(), keys[0]);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 20, "drafts are left");
}

#[test]
fn an_identity_that_is_not_safe_is_refused() {
    let folder = Folder::new("tls-unsafe");
    let path = folder.file("identity");
    Identity::load_or_create(&path).unwrap();
    for mode in [0o640, 0o604, 0o660] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let error = Identity::load_or_create(&path).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let link = folder.file("link");
    symlink(&path, &link).unwrap();
    let error = Identity::load_or_create(&link).unwrap_err();
    assert!(matches!(error, IdentityError::File(FileError::Link { .. })), "{error}");
    // A link to nowhere is not followed to make a file there.
    let dangling = folder.file("dangling");
    symlink(folder.file("elsewhere"), &dangling).unwrap();
    assert!(Identity::load_or_create(&dangling).is_err());
    assert!(!folder.file("elsewhere").exists());
    assert!(matches!(
        Identity::load_or_create(folder.path()),
        Err(IdentityError::File(FileError::NotAFile { .. }))
    ));
}

#[test]
fn a_file_that_is_no_identity_is_never_replaced() {
    let folder = Folder::new("tls-not-an-identity");
    let good = folder.file("good");
    Identity::load_or_create(&good).unwrap();
    let text = fs::read_to_string(&good).unwrap();
    let other = text.replace("MC4CAQAwBQYDK2Vw", "MC4CAQAwBQYDK2Vu"); // X25519
    for (at, bad) in
        ["", "ab", &text[10..], &other, &text.replace('\n', "\n\n-")].iter().enumerate()
    {
        let path = folder.file(&format!("bad-{at}"));
        fs::write(&path, bad).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let error = Identity::load_or_create(&path).unwrap_err();
        assert!(matches!(error, IdentityError::NotAnIdentity { .. }), "{bad}: {error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), **bad);
    }
    let large = folder.file("large");
    fs::write(&large, "x".repeat(5_000)).unwrap();
    fs::set_permissions(&large, Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(
        Identity::load(&large),
        Err(IdentityError::File(FileError::TooLarge { bytes_max: 4096, .. }))
    ));
}

#[test]
fn a_node_is_pinned_compared_and_revoked() {
    let folder = Folder::new("tls-nodes");
    let path = folder.file("known_nodes");
    assert_eq!(KnownNodes::load(&path).unwrap().check("gpu01", &key(1)).unwrap(), Pin::Unknown);
    KnownNodes::pin(&path, "gpu01", key(1)).unwrap();
    KnownNodes::pin(&path, "tcp:[fe80::1]:7777", key(1)).unwrap();
    KnownNodes::pin(&path, "gpu01", key(1)).unwrap();
    let nodes = KnownNodes::load(&path).unwrap();
    assert_eq!(nodes.iter().count(), 2);
    assert_eq!(nodes.key_of("gpu01"), Some(key(1)));
    assert_eq!(nodes.check("gpu01", &key(1)).unwrap(), Pin::Known);
    for error in [
        nodes.check("gpu01", &key(2)).unwrap_err(),
        KnownNodes::pin(&path, "gpu01", key(2)).unwrap_err(),
    ] {
        let PinError::OtherKey { line, pinned, found, .. } = &error else { panic!("{error}") };
        assert_eq!((*line, *pinned, *found), (1, key(1), key(2)));
        let text = error.to_string();
        assert!(text.contains("penstock key revoke gpu01"), "{text}");
        assert!(
            text.contains(&key(2).fingerprint()) && text.contains("known_nodes, line 1"),
            "{text}"
        );
    }
    assert_eq!(KnownNodes::revoke(&path, "gpu01").unwrap(), Some(key(1)));
    assert_eq!(KnownNodes::revoke(&path, "gpu01").unwrap(), None);
    KnownNodes::pin(&path, "gpu01", key(2)).unwrap();
}

#[test]
fn clients_are_allowed_found_and_revoked() {
    let folder = Folder::new("tls-clients");
    let path = folder.file("authorized_clients");
    let options = ClientOptions {
        devices: Devices::Only(vec!["0".into(), "2".into()]),
        quota: Some("small".into()),
        revoked: false,
    };
    let anna = Client { name: "anna@desk".into(), key: key(1), options };
    let bert = Client { name: "bert".into(), key: key(2), options: ClientOptions::default() };
    AuthorizedClients::allow(&path, anna.clone()).unwrap();
    AuthorizedClients::allow(&path, bert.clone()).unwrap();
    let clients = AuthorizedClients::load(&path).unwrap();
    assert_eq!(clients.with_key(&key(1)), Some(&anna));
    assert_eq!(clients.with_key(&key(3)), None);
    assert!(clients.to_string().contains(" devices=0,2 quota=small\n"), "{clients}");
    for (name, byte) in [("anna@desk", 3), ("carl", 2)] {
        let twice = Client { name: name.into(), key: key(byte), ..bert.clone() };
        assert!(matches!(AuthorizedClients::allow(&path, twice), Err(ListError::Entry { .. })));
    }
    // A revoked client stays in the list, so that its key is not accepted by another way.
    assert_eq!(AuthorizedClients::revoke(&path, "anna@desk").unwrap(), Some(anna.clone()));
    let options = ClientOptions { revoked: true, ..anna.options.clone() };
    let revoked = Client { options, ..anna };
    let clients = AuthorizedClients::load(&path).unwrap();
    assert_eq!(clients.iter().collect::<Vec<_>>(), [&bert, &revoked]);
    assert!(clients.to_string().ends_with(" devices=0,2 quota=small revoked\n"), "{clients}");
    assert_eq!(AuthorizedClients::revoke(&path, "anna@desk").unwrap(), Some(revoked.clone()));
    assert_eq!(AuthorizedClients::forget(&path, "anna@desk").unwrap(), Some(revoked));
    assert_eq!(AuthorizedClients::load(&path).unwrap().iter().collect::<Vec<_>>(), [&bert]);
}

#[test]
fn nothing_is_added_that_would_be_read_as_something_else() {
    let folder = Folder::new("tls-injection");
    let path = folder.file("authorized_clients");
    let with = |name: &str, quota: &str, device: &str| Client {
        name: name.to_owned(),
        key: key(1),
        options: ClientOptions {
            quota: Some(quota.to_owned()),
            devices: Devices::Only(vec![device.to_owned()]),
            revoked: false,
        },
    };
    let line = format!("small\nmallory {}", key(9));
    for client in [
        with("a b", "q", "0"),
        with("#a", "q", "0"),
        with("", "q", "0"),
        with("a", "q # devices", "0"),
        with("a", &line, "0"),
        with("a", "q", "0,1"),
        with("a", "q", ""),
    ] {
        let error = AuthorizedClients::allow(&path, client.clone()).unwrap_err();
        assert!(matches!(error, ListError::Entry { .. }), "{client:?}: {error}");
        assert!(!path.exists());
    }
}

#[test]
fn a_line_that_is_not_understood_is_named() {
    let (one, two) = (key(1), key(2));
    let parse = |text: &str| AuthorizedClients::parse(Path::new("list"), text).unwrap_err();
    let line = |text: &str| match parse(&format!("# first\n\n{text}\n")) {
        ListError::Line { line: 3, why, .. } => why,
        other => panic!("{other}"),
    };
    assert_eq!(line("anna"), LineError::Short);
    assert!(matches!(line("anna ed25519:AAAA"), LineError::Key { .. }));
    assert!(matches!(line(&format!("anna # {one}")), LineError::Short));
    assert_eq!(line(&format!("anna {one} device=1")), LineError::Option("device=1".into()));
    assert_eq!(line(&format!("anna {one} devices")), LineError::Option("devices".into()));
    assert_eq!(line(&format!("anna {one} devices=")), LineError::OptionValue("devices"));
    assert_eq!(line(&format!("anna {one} devices=1,,2")), LineError::OptionValue("devices"));
    assert_eq!(line(&format!("anna {one} quota=")), LineError::OptionValue("quota"));
    assert_eq!(line(&format!("a {one} quota=x quota=x")), LineError::OptionTwice("quota"));
    assert_eq!(line(&format!("a {one} revoked revoked")), LineError::OptionTwice("revoked"));
    assert_eq!(line(&format!("a {one} revoked=1")), LineError::Option("revoked=1".to_owned()));
    assert_eq!(line(&format!("a {one} devices=1 devices=1")), LineError::OptionTwice("devices"));
    assert!(matches!(line(&format!("\u{fc} {one}")), LineError::Name(_)));
    let twice = parse(&format!("anna {one}\nanna {two}\n")).to_string();
    assert_eq!(twice, "list, line 2: the name `anna` is already in line 1");
    let twice = parse(&format!("anna {one}\nbert {one}\n")).to_string();
    assert_eq!(twice, "list, line 2: the key is already in line 1, under the name `anna`");
    let nodes = KnownNodes::parse(Path::new("list"), &format!("gpu01 {one} quota=x")).unwrap_err();
    assert!(nodes.to_string().contains("line 1: `quota=x` is unexpected"), "{nodes}");
}

#[test]
fn changes_keep_all_other_lines_as_they_were() {
    let folder = Folder::new("tls-lines");
    let path = folder.file("authorized_clients");
    let text =
        format!("# the lab\n\n  anna\t{}   quota=small # until May\nbert {}\n#end", key(1), key(2));
    fs::write(&path, &text).unwrap();
    AuthorizedClients::forget(&path, "bert").unwrap().unwrap();
    let wanted = text.replace(&format!("bert {}\n", key(2)), "") + "\n";
    assert_eq!(fs::read_to_string(&path).unwrap(), wanted);
    // What nobody changed is not written anew.
    let before = fs::metadata(&path).unwrap().ino();
    assert_eq!(AuthorizedClients::revoke(&path, "bert").unwrap(), None);
    assert_eq!(fs::metadata(&path).unwrap().ino(), before);
}

#[test]
fn a_list_that_others_can_write_is_refused_and_nothing_is_lost_by_a_bad_one() {
    let folder = Folder::new("tls-list-modes");
    let path = folder.file("known_nodes");
    KnownNodes::pin(&path, "gpu01", key(1)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
    for mode in [0o664, 0o646] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let error = KnownNodes::load(&path).unwrap_err();
        assert!(error.to_string().contains("chmod go-w"), "{error}");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    fs::write(&path, "gpu01\n").unwrap();
    let error = KnownNodes::pin(&path, "gpu02", key(2)).unwrap_err();
    assert!(error.to_string().contains("known_nodes, line 1"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "gpu01\n");
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(matches!(KnownNodes::load(&path), Err(ListError::File(FileError::NotText { .. }))));
}

#[test]
fn changes_at_once_lose_nothing() {
    let folder = Folder::new("tls-at-once");
    let path = folder.file("known_nodes");
    thread::scope(|scope| {
        for byte in 0..8_u8 {
            let path = &path;
            scope.spawn(move || {
                for round in 0..10 {
                    KnownNodes::pin(path, &format!("node-{byte}-{round}"), key(byte)).unwrap();
                }
            });
        }
    });
    assert_eq!(KnownNodes::load(&path).unwrap().iter().count(), 80);
}

proptest! {
    #[test]
    fn a_list_that_is_read_is_written_as_it_was(text in "[ -~\n\t\r]{0,200}") {
        let path = Path::new("list");
        if let Ok(list) = AuthorizedClients::parse(path, &text) {
            let written = list.to_string();
            let ends = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            prop_assert_eq!(written, text + ends);
        }
    }

    #[test]
    fn any_entries_survive_a_round_trip(
        entries in prop::collection::btree_map("[!-\"$-~]{1,30}", any::<[u8; 32]>(), 0..10)
    ) {
        let text: String = entries
            .iter()
            .map(|(name, bytes)| format!("{name} {}\n", PublicKey::from_bytes(*bytes)))
            .collect();
        let nodes = KnownNodes::parse(Path::new("list"), &text).unwrap();
        prop_assert_eq!(nodes.iter().count(), entries.len());
        for (name, bytes) in &entries {
            prop_assert_eq!(nodes.key_of(name), Some(PublicKey::from_bytes(*bytes)));
        }
        prop_assert_eq!(nodes.to_string(), text);
    }
}

//! Which links are encrypted, and with which keys.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use penstock_process::variable;
use penstock_tls::{
    AuthorizedClients, Client, ClientOptions, Devices, Expected, Handshake, Handshakes, Identity,
    KnownNodes, Listed, Pin, PinError, PublicKey,
};
use penstock_wire::limits::PROTOCOL_VERSION;

use crate::error::LinkError;
use crate::invitation::Guests;
use crate::key::{AwaitedKey, Key};
use crate::transport::contract::Exposure;

/// Maximum number of clients that the pool's key writes into the list of a daemon. Each is a line
/// of some 80 bytes, which each hello reads. A client beyond the limit is let in as long as its key
/// of the pool is right, and is not written down.
pub const ENROLLED_CLIENTS_MAX: usize = 1_000;

/// Names of the files in the folder of a user's keys.
pub const IDENTITY_FILE: &str = "identity";
pub const KNOWN_NODES_FILE: &str = "known_nodes";
pub const AUTHORIZED_CLIENTS_FILE: &str = "authorized_clients";

/// Which connections of a transport that can leave the host are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// None. A peer that wants encryption is refused.
    Never,
    /// Those that leave the host. On this host, a listener takes both kinds.
    #[default]
    Remote,
    /// All.
    Always,
}

/// What a listener takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Plain,
    Encrypted,
    /// What the first byte says.
    Either,
}

impl Rule {
    /// Words for the rules in variables and files, in the order of [`Rule::ALL`].
    pub const WORDS: [&'static str; 3] = ["never", "remote", "always"];
    pub const ALL: [Self; 3] = [Self::Never, Self::Remote, Self::Always];

    /// Returns the rule with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        let at = Self::WORDS.iter().position(|known| *known == word)?;
        Self::ALL.get(at).copied()
    }

    /// Returns the word for this rule.
    pub fn word(self) -> &'static str {
        let at = Self::ALL.iter().position(|rule| *rule == self);
        at.and_then(|at| Self::WORDS.get(at)).copied().unwrap_or_default()
    }

    /// Returns the rule that the variable names, or the default.
    ///
    /// # Errors
    /// Returns a message if the variable names none. A typing error must not switch encryption
    /// off.
    pub fn configured() -> Result<Self, String> {
        let Some(value) = variable::ENCRYPTION.value() else { return Ok(Self::default()) };
        let rule = value.to_str().and_then(|word| Self::from_word(word.trim()));
        rule.ok_or_else(|| {
            let (name, value) = (variable::ENCRYPTION.name, value.display());
            format!("variable {name}: `{value}` is not {}", Self::WORDS.join(", "))
        })
    }

    /// Returns whether this side encrypts a connection that it has made. There is no second
    /// attempt in plain text: what the peer answers never changes this.
    pub(crate) fn encrypts(self, exposure: Exposure) -> bool {
        match (self, exposure) {
            (_, Exposure::Kernel) | (Self::Never, _) | (Self::Remote, Exposure::Loopback) => false,
            (Self::Remote, Exposure::Network) | (Self::Always, _) => true,
        }
    }

    /// Returns what this side takes on a connection that it has accepted.
    pub(crate) fn takes(self, exposure: Exposure) -> Taken {
        match (self, exposure) {
            (_, Exposure::Kernel) | (Self::Never, _) => Taken::Plain,
            (Self::Remote, Exposure::Loopback) => Taken::Either,
            (Self::Remote, Exposure::Network) | (Self::Always, _) => Taken::Encrypted,
        }
    }
}

/// How the links of a process are encrypted.
#[derive(Clone, Debug, Default)]
pub struct EncryptionOptions {
    pub rule: Rule,
    /// Folder with the identity, the known nodes and the authorized clients.
    pub folder: Option<PathBuf>,
}

/// How a side that connects knows a node again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pins {
    /// By its entry in the file of known nodes, which is written when the node has proved the
    /// pool's key.
    File,
    /// Not at all: the node proves the pool's key each time.
    Never,
    /// By this key alone, which has come over a connection that SSH protects. No file is read.
    Key(PublicKey),
}

/// Identity of this side, and what it knows of others.
pub struct Encryption {
    options: EncryptionOptions,
    pins: Pins,
    /// Made at first use, so that a user without encrypted links has no identity.
    handshakes: OnceLock<Handshakes>,
}

impl Encryption {
    /// Prepares encryption. Returns `None` if the rule never encrypts.
    pub fn new(options: &EncryptionOptions, pins: Pins) -> Option<Self> {
        let encrypts = options.rule != Rule::Never;
        encrypts.then(|| Self { options: options.clone(), pins, handshakes: OnceLock::new() })
    }

    /// Prepares encryption of all links with an identity that lasts as long as this value. No file
    /// is read or written.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    pub fn for_now(pins: Pins) -> Result<Self, LinkError> {
        let options = EncryptionOptions { rule: Rule::Always, folder: None };
        let made = Self::handshakes_of(&Identity::generate()?)?;
        Ok(Self { options, pins, handshakes: OnceLock::from(made) })
    }

    /// Returns the public key of this side. Makes the identity at first use.
    ///
    /// # Errors
    /// Fails if the identity cannot be read or written.
    pub fn public(&self) -> Result<PublicKey, LinkError> {
        self.handshakes().map(Handshakes::public)
    }

    pub(crate) fn rule(&self) -> Rule {
        self.options.rule
    }

    pub(crate) fn accept(&self) -> Result<Handshake, LinkError> {
        self.handshakes()?.accept().map_err(LinkError::setup)
    }

    /// Starts the handshake with the node of this name. Returns what is known of the node.
    pub(crate) fn connect(&self, name: &str) -> Result<(Handshake, Pin), LinkError> {
        let pinned = match self.pins {
            Pins::File => KnownNodes::load(&self.file(KNOWN_NODES_FILE)?)?.key_of(name),
            Pins::Never => None,
            Pins::Key(key) => Some(key),
        };
        let expected = pinned.map_or(Expected::Any, Expected::Key);
        let handshake = self.handshakes()?.connect(expected).map_err(LinkError::setup)?;
        Ok((handshake, if pinned.is_some() { Pin::Known } else { Pin::Unknown }))
    }

    /// Returns what to tell of a node that has another key than the pinned one.
    pub(crate) fn changed(&self, name: &str, found: &PublicKey) -> Result<(), LinkError> {
        if self.pins != Pins::File {
            return Ok(());
        }
        KnownNodes::load(&self.file(KNOWN_NODES_FILE)?)?.check(name, found)?;
        Ok(())
    }

    /// Writes down a node that has proved the pool's key.
    pub(crate) fn pin(&self, name: &str, key: PublicKey) -> Result<(), LinkError> {
        match self.pins {
            Pins::File => Ok(KnownNodes::pin(&self.file(KNOWN_NODES_FILE)?, name, key)?),
            Pins::Never | Pins::Key(_) => Ok(()),
        }
    }

    /// Returns what the list says of a client.
    pub(crate) fn listed(&self, key: &PublicKey) -> Result<Standing, LinkError> {
        Ok(Standing::of(&self.clients()?, key))
    }

    /// Writes down a client that has proved the pool's key. If two hellos of one client do this at
    /// the same time, the second one finds it written.
    pub(crate) fn enrol(&self, key: PublicKey) -> Result<(), LinkError> {
        let clients = self.clients()?;
        if clients.with_key(&key).is_some() || clients.iter().count() >= ENROLLED_CLIENTS_MAX {
            return Ok(());
        }
        let name = format!("enrolled-{}", key.fingerprint());
        let client = Client { name, key, options: ClientOptions::default() };
        match AuthorizedClients::allow(&self.file(AUTHORIZED_CLIENTS_FILE)?, client) {
            Err(error) if self.listed(&key)?.listed == Listed::No => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Returns whether a client may stay.
    ///
    /// # Errors
    /// Fails if the list cannot be read.
    pub fn is_revoked(&self, key: &PublicKey) -> Result<bool, LinkError> {
        Ok(self.listed(key)?.listed == Listed::Revoked)
    }

    /// Returns the file of the clients that a daemon lets in.
    ///
    /// # Errors
    /// Fails if there is no folder for keys.
    pub fn clients_file(&self) -> Result<PathBuf, LinkError> {
        self.file(AUTHORIZED_CLIENTS_FILE)
    }

    fn clients(&self) -> Result<AuthorizedClients, LinkError> {
        Ok(AuthorizedClients::load(&self.clients_file()?)?)
    }

    fn file(&self, name: &str) -> Result<PathBuf, LinkError> {
        self.options.folder.as_deref().map(|folder| folder.join(name)).ok_or(LinkError::NoFolder)
    }

    fn handshakes(&self) -> Result<&Handshakes, LinkError> {
        if let Some(made) = self.handshakes.get() {
            return Ok(made);
        }
        let identity = Identity::load_or_create(&self.file(IDENTITY_FILE)?)?;
        let made = Self::handshakes_of(&identity)?;
        Ok(self.handshakes.get_or_init(|| made))
    }

    fn handshakes_of(identity: &Identity) -> Result<Handshakes, LinkError> {
        let protocol = format!("penstock/{PROTOCOL_VERSION}");
        Handshakes::new(identity, protocol.as_bytes()).map_err(LinkError::setup)
    }
}

/// What a list says of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) listed: Listed,
    /// Name of the client's quota. The daemon enforces it.
    pub(crate) quota: Option<String>,
    /// Numbers of the devices that the client may use; `None` for all. The daemon enforces them.
    pub(crate) devices: Option<Vec<u32>>,
}

impl Standing {
    fn of(clients: &AuthorizedClients, key: &PublicKey) -> Self {
        let options = clients.with_key(key).map(|client| &client.options);
        let listed = match options {
            None => Listed::No,
            Some(ClientOptions { revoked: true, .. }) => Listed::Revoked,
            // A daemon knows devices by their numbers only.
            Some(ClientOptions { devices: Devices::Only(ids), .. }) if numbers(ids).is_none() => {
                Listed::Restricted
            }
            Some(_) => Listed::Allowed,
        };
        let devices = options.and_then(|options| match &options.devices {
            Devices::All => None,
            // If they were not understood, the client is refused.
            Devices::Only(ids) => Some(numbers(ids).unwrap_or_default()),
        });
        Self { listed, quota: options.and_then(|options| options.quota.clone()), devices }
    }
}

/// Most devices that a line of the list may name. Nodes have 16 at most.
const LISTED_DEVICES_MAX: usize = 256;

/// Reads the numbers of devices. Returns `None` if there is anything else.
fn numbers(ids: &[String]) -> Option<Vec<u32>> {
    let is_number = |id: &&String| id.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = ids.iter().map(|id| Some(id).filter(is_number)?.parse().ok());
    numbers.collect::<Option<Vec<u32>>>().filter(|all| all.len() <= LISTED_DEVICES_MAX)
}

/// Returns the folder of this user's keys, from the variables of the process.
///
/// # Errors
/// Returns a message if the variable for it has a relative path.
pub fn keys_folder() -> Result<Option<PathBuf>, String> {
    let directory = |name| variable::value(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let config = || {
        let base =
            directory("XDG_CONFIG_HOME").or_else(|| Some(directory("HOME")?.join(".config")))?;
        Some(base.join("penstock"))
    };
    match variable::KEYS.path() {
        None => Ok(config()),
        Some(path) if path.is_absolute() => Ok(Some(path)),
        Some(path) => {
            let (name, path) = (variable::KEYS.name, path.display());
            Err(format!("variable {name}: `{path}` is no absolute path; write the folder in full"))
        }
    }
}

/// Keys of this side.
#[derive(Debug, Default)]
pub struct Keys {
    /// Key of the pool.
    pub pool: Option<Key>,
    /// Where the key of the pool may appear later.
    pub awaited: Option<AwaitedKey>,
    pub encryption: Option<Encryption>,
}

impl Keys {
    /// Reads the pool's key, if there is a file, and prepares encryption.
    ///
    /// # Errors
    /// Fails if the file of the key cannot be used.
    pub fn load(
        pool: Option<&Path>,
        encryption: &EncryptionOptions,
        pins: Pins,
    ) -> Result<Self, LinkError> {
        let pool = pool.map(Key::load).transpose()?;
        Ok(Self { pool, awaited: None, encryption: Encryption::new(encryption, pins) })
    }

    /// Returns the pool's key, if this side has it by now.
    #[must_use]
    pub fn pool(&self) -> Option<&Key> {
        self.pool.as_ref().or_else(|| self.awaited.as_ref()?.get())
    }
}

/// Keys with which a side opens or accepts one link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trust<'a> {
    pub pool: Option<&'a Key>,
    pub encryption: Option<&'a Encryption>,
    /// The clients with one-time keys. Where they connect, nobody else is let in.
    pub guests: Option<&'a dyn Guests>,
}

impl<'a> From<&'a Keys> for Trust<'a> {
    fn from(keys: &'a Keys) -> Self {
        Self { pool: keys.pool(), encryption: keys.encryption.as_ref(), guests: None }
    }
}

/// Without encryption.
impl<'a> From<Option<&'a Key>> for Trust<'a> {
    fn from(pool: Option<&'a Key>) -> Self {
        Self { pool, encryption: None, guests: None }
    }
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption").field("options", &self.options).finish_non_exhaustive()
    }
}

impl LinkError {
    fn setup(error: penstock_tls::HandshakeError) -> Self {
        Self::Handshake { peer: "this side".to_owned(), source: Box::new(error) }
    }
}

impl From<PinError> for LinkError {
    fn from(error: PinError) -> Self {
        Self::Pin(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Exposure; 3] = [Exposure::Kernel, Exposure::Loopback, Exposure::Network];

    #[test]
    fn rules_have_words() {
        for rule in Rule::ALL {
            assert_eq!(Rule::from_word(rule.word()), Some(rule));
        }
        assert_eq!(Rule::from_word("on"), None);
    }

    #[test]
    fn what_leaves_the_host_is_encrypted_unless_somebody_says_otherwise() {
        let rule = Rule::default();
        assert_eq!(ALL.map(|at| rule.encrypts(at)), [false, false, true]);
        assert_eq!(rule.takes(Exposure::Network), Taken::Encrypted);
        assert_eq!(EncryptionOptions::default().rule, rule);
    }

    #[test]
    fn each_rule_says_what_is_encrypted() {
        assert_eq!(ALL.map(|at| Rule::Never.encrypts(at)), [false, false, false]);
        assert_eq!(ALL.map(|at| Rule::Remote.encrypts(at)), [false, false, true]);
        assert_eq!(ALL.map(|at| Rule::Always.encrypts(at)), [false, true, true]);
    }

    #[test]
    fn each_rule_says_what_a_listener_takes() {
        use Taken::{Either, Encrypted, Plain};
        assert_eq!(ALL.map(|at| Rule::Never.takes(at)), [Plain, Plain, Plain]);
        assert_eq!(ALL.map(|at| Rule::Remote.takes(at)), [Plain, Either, Encrypted]);
        assert_eq!(ALL.map(|at| Rule::Always.takes(at)), [Plain, Encrypted, Encrypted]);
    }

    #[test]
    fn two_sides_with_one_rule_agree() {
        for rule in Rule::ALL {
            for exposure in ALL {
                let refused = if rule.encrypts(exposure) { Taken::Plain } else { Taken::Encrypted };
                assert_ne!(rule.takes(exposure), refused, "{rule:?} {exposure:?}");
            }
        }
    }

    #[test]
    fn a_list_says_who_is_let_in() {
        let key = |byte| PublicKey::from_bytes([byte; 32]);
        let line = |name: &str, byte, more: &str| format!("{name} {}{more}\n", key(byte));
        let text = line("a", 1, "")
            + &line("b", 2, " revoked")
            + &line("c", 3, " devices=0,gpu")
            + &line("d", 4, " quota=small")
            + &line("e", 5, " quota=small revoked")
            + &line("f", 6, " devices=2,0");
        let clients = AuthorizedClients::parse(Path::new("list"), &text).unwrap();
        let found = [1, 2, 3, 4, 5, 6, 7].map(|byte| Standing::of(&clients, &key(byte)));
        use Listed::{Allowed, No, Restricted, Revoked};
        let expected = [Allowed, Revoked, Restricted, Allowed, Revoked, Allowed, No];
        assert_eq!(found.clone().map(|it| it.listed), expected);
        let [_, _, _, whole, _, part, _] = found.clone().map(|it| it.devices);
        assert_eq!((whole, part), (None, Some(vec![2, 0])));
        let quotas = found.map(|it| it.quota);
        let small = || Some("small".to_owned());
        assert_eq!(quotas, [None, None, None, small(), small(), None, None]);
    }
}

//! The clients that a daemon accepts, and their keys.

use std::fmt;
use std::path::Path;

use super::{Entry, LineError, Lines, ListError};
use crate::key::PublicKey;

/// Keys of the clients that a daemon accepts, in the spirit of SSH's `authorized_keys`. A line has
/// a name, a key, and options.
#[derive(Debug)]
pub struct AuthorizedClients(Lines<Client>);

/// Client that a daemon accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    pub name: String,
    pub key: PublicKey,
    pub options: ClientOptions,
}

/// What a client may use. A daemon that cannot enforce an option must refuse the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOptions {
    pub devices: Devices,
    /// Name of a quota.
    pub quota: Option<String>,
    /// Whether the client was let in once and is not any more. The entry stays, so that the pool's
    /// key does not enrol the same key again.
    pub revoked: bool,
}

/// Devices that a client may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Devices {
    #[default]
    All,
    /// Those with these identifiers.
    Only(Vec<String>),
}

impl AuthorizedClients {
    /// Reads the text of a file. `path` is for messages.
    ///
    /// # Errors
    /// Fails if a line is not understood.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ListError> {
        Lines::parse(path, text).map(Self)
    }

    /// Reads a file. A file that does not exist has no clients.
    ///
    /// # Errors
    /// Fails if the file cannot be used or a line is not understood.
    pub fn load(path: &Path) -> Result<Self, ListError> {
        Lines::load(path).map(Self)
    }

    /// Adds a client to a file.
    ///
    /// # Errors
    /// Fails if the name or the key is there already, or the file cannot be used.
    pub fn allow(path: &Path, client: Client) -> Result<(), ListError> {
        Lines::<Client>::update(path, |lines| lines.add(client))
    }

    /// Marks a client of a file as revoked. Its entry stays, so that the pool's key does not enrol
    /// the same key again. Returns the client as it was, if it was there.
    ///
    /// # Errors
    /// Fails if the file cannot be used.
    pub fn revoke(path: &Path, name: &str) -> Result<Option<Client>, ListError> {
        Lines::<Client>::update(path, |lines| {
            let Some(client) = lines.remove(name) else { return Ok(None) };
            let options = ClientOptions { revoked: true, ..client.options.clone() };
            lines.add(Client { options, ..client.clone() })?;
            Ok(Some(client))
        })
    }

    /// Removes a client from a file. Returns the client if it was there.
    ///
    /// # Errors
    /// Fails if the file cannot be used.
    pub fn forget(path: &Path, name: &str) -> Result<Option<Client>, ListError> {
        Lines::<Client>::update(path, |lines| Ok(lines.remove(name)))
    }

    /// Returns the client with this key.
    pub fn with_key(&self, key: &PublicKey) -> Option<&Client> {
        self.iter().find(|client| client.key == *key)
    }

    /// Returns the clients in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.0.entries()
    }
}

impl fmt::Display for AuthorizedClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

const DEVICES: &str = "devices";
const QUOTA: &str = "quota";
const REVOKED: &str = "revoked";

impl Entry for Client {
    /// Two entries with one key could give it two sets of options.
    const KEYS_REPEAT: bool = false;

    fn name(&self) -> &str {
        &self.name
    }

    fn key(&self) -> &PublicKey {
        &self.key
    }

    fn read(name: &str, key: PublicKey, rest: &[&str]) -> Result<Self, LineError> {
        let mut options = ClientOptions::default();
        for word in rest {
            if *word == REVOKED {
                if std::mem::replace(&mut options.revoked, true) {
                    return Err(LineError::OptionTwice(REVOKED));
                }
                continue;
            }
            let unknown = || LineError::Option((*word).to_owned());
            let (option, value) = word.split_once('=').ok_or_else(unknown)?;
            match option {
                DEVICES if options.devices != Devices::All => {
                    return Err(LineError::OptionTwice(DEVICES));
                }
                QUOTA if options.quota.is_some() => return Err(LineError::OptionTwice(QUOTA)),
                DEVICES => {
                    let ids: Vec<String> = value.split(',').map(str::to_owned).collect();
                    if ids.iter().any(String::is_empty) {
                        return Err(LineError::OptionValue(DEVICES));
                    }
                    options.devices = Devices::Only(ids);
                }
                QUOTA if value.is_empty() => return Err(LineError::OptionValue(QUOTA)),
                QUOTA => options.quota = Some(value.to_owned()),
                _ => return Err(unknown()),
            }
        }
        Ok(Self { name: name.to_owned(), key, options })
    }

    fn to_text(&self) -> String {
        let mut text = format!("{} {}", self.name, self.key);
        if let Devices::Only(ids) = &self.options.devices {
            text += &format!(" {DEVICES}={}", ids.join(","));
        }
        if let Some(quota) = &self.options.quota {
            text += &format!(" {QUOTA}={quota}");
        }
        if self.options.revoked {
            text += &format!(" {REVOKED}");
        }
        text
    }
}

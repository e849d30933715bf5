//! `penstock key`: the pool's key, with which nodes and clients authenticate each other over TCP
//! and vsock, and the public keys of encrypted links.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use penstock_client::config::{Config, Surroundings, Where, nodes};
use penstock_link::{
    AUTHORIZED_CLIENTS_FILE, AuthorizedClient, AuthorizedClients, ClientOptions, IDENTITY_FILE,
    Identity, KNOWN_NODES_FILE, Key, KnownNodes, LinkError, PublicKey,
};

use crate::failure::Failure;
use crate::table::{self, Table};

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct KeyArgs {
    #[command(subcommand)]
    pub command: Option<KeyCommand>,
    /// Create a new key, unless there is one already
    #[arg(long)]
    pub create: bool,
    /// Print only the path of the key file
    #[arg(long)]
    pub path: bool,
}

#[derive(Subcommand, Debug)]
pub enum KeyCommand {
    /// Show this user's own public key, the nodes that it knows, and the clients of its daemon
    List,
    /// Accept a public key: of a node that this user reaches, or of a client of this user's daemon
    Allow {
        /// Address of a node, such as tcp:gpu01, or any name for a client
        name: String,
        /// Public key, as `penstock key list` shows it on the other side
        key: String,
        /// Section of the file of limits for a client: it has the limits of [user."key:QUOTA"],
        /// together with all other clients of this quota
        #[arg(long)]
        quota: Option<String>,
    },
    /// Accept a public key no longer. Running sessions of a client end within a second
    Revoke {
        /// Address of a node, or name of a client, as `penstock key list` shows it
        name: String,
    },
}

/// Shows where the key is and checks that it is usable. Creates one if the arguments ask for it.
pub fn key(args: &KeyArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        None => {}
        Some(KeyCommand::List) => return list(),
        Some(KeyCommand::Allow { name, key, quota }) => return allow(name, key, quota.as_deref()),
        Some(KeyCommand::Revoke { name }) => return revoke(name),
    }
    let path = key_path()?;
    if args.create && !path.exists() {
        Key::create(&path)?;
        if !args.path {
            table::print(&format!(
                "Created a new key: {0}\nCopy it to the same place on every node and client of the \
                 pool, for example:\n  ssh NODE 'umask 077; mkdir -p ~/.config/penstock; \
                 cat > ~/.config/penstock/key' < {0}\nEveryone who can read the key can use all \
                 devices of the pool and see what runs there.\n",
                path.display()
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    if args.path {
        table::print(&format!("{}\n", path.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !path.exists() {
        return Err(Failure::Missing {
            what: "the pool's key",
            looked: vec![path],
            remedy: "make one with `penstock key --create`, or copy it from another node of the pool",
        });
    }
    Key::load(&path)?;
    table::print(&format!("{}: a key that only its owner can read\n", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the path of the key file: the configured one, otherwise the default one. The file may
/// not exist.
pub fn key_path() -> Result<PathBuf, Failure> {
    Ok(match Config::load()?.key {
        Some(path) => path,
        None => Surroundings::of_process().key_file().ok_or(Failure::NoHome)?,
    })
}

/// Shows this user's own public key, the nodes that it knows, and the clients of its daemon.
fn list() -> Result<ExitCode, Failure> {
    let own = Identity::load_or_create(&file(IDENTITY_FILE)?).map_err(LinkError::from)?.public();
    let nodes = KnownNodes::load(&file(KNOWN_NODES_FILE)?).map_err(LinkError::from)?;
    let clients = AuthorizedClients::load(&file(AUTHORIZED_CLIENTS_FILE)?);
    let clients = clients.map_err(LinkError::from)?;
    let mut table = Table::new(&["KEY OF", "NAME", "FINGERPRINT", "KEY"]);
    let mut row = |of: &str, name: &str, key: &PublicKey| {
        let cells = [of.to_owned(), name.to_owned(), key.fingerprint(), key.to_string()];
        table.row(cells.into());
    };
    row("this user", "-", &own);
    nodes.iter().for_each(|(name, key)| row("node", name, key));
    for client in clients.iter() {
        let of = if client.options.revoked { "client, revoked" } else { "client" };
        row(of, &client.name, &client.key);
    }
    // Not cut to the terminal's width: a key is copied as a whole.
    table::print(&table.render(None))?;
    Ok(ExitCode::SUCCESS)
}

/// Accepts the key of a node or client.
fn allow(name: &str, key: &str, quota: Option<&str>) -> Result<ExitCode, Failure> {
    let key: PublicKey = key.parse().map_err(|why| Failure::Argument {
        argument: key.to_owned(),
        reason: format!("{why}; copy it from `penstock key list` on the other side"),
    })?;
    if let Some(node) = node(name)? {
        if let Some(quota) = quota {
            return Err(Failure::Argument {
                argument: format!("--quota {quota}"),
                reason: format!("{node} is the address of a node, and only clients have quotas"),
            });
        }
        let pinned = KnownNodes::pin(&file(KNOWN_NODES_FILE)?, &node, key);
        pinned.map_err(LinkError::from)?;
        return said(&format!("{node} is known with the fingerprint {}\n", key.fingerprint()));
    }
    let path = file(AUTHORIZED_CLIENTS_FILE)?;
    let known = AuthorizedClients::load(&path).map_err(LinkError::from)?;
    // A revoked client is accepted again, under any name.
    if let Some(client) = known.with_key(&key).filter(|client| client.options.revoked) {
        AuthorizedClients::forget(&path, &client.name).map_err(LinkError::from)?;
    }
    let options = ClientOptions { quota: quota.map(str::to_owned), ..ClientOptions::default() };
    let client = AuthorizedClient { name: name.to_owned(), key, options };
    AuthorizedClients::allow(&path, client).map_err(LinkError::from)?;
    said(&format!("client {name} is accepted with the fingerprint {}\n", key.fingerprint()))
}

/// Accepts the key of a node or client no longer.
fn revoke(name: &str) -> Result<ExitCode, Failure> {
    let unknown = |what: &str| Failure::Argument {
        argument: name.to_owned(),
        reason: format!("there is no {what} of this name; see `penstock key list`"),
    };
    if let Some(node) = node(name)? {
        let removed = KnownNodes::revoke(&file(KNOWN_NODES_FILE)?, &node);
        removed.map_err(LinkError::from)?.ok_or_else(|| unknown("node"))?;
        return said(&format!("{node} is not known any more\n"));
    }
    let revoked = AuthorizedClients::revoke(&file(AUTHORIZED_CLIENTS_FILE)?, name);
    revoked.map_err(LinkError::from)?.ok_or_else(|| unknown("client"))?;
    said(&format!(
        "client {name} is revoked; its sessions and links end within a second. A client that has \
         the pool's key can come back with a new key of its own: if it has, give the pool a new \
         key\n"
    ))
}

/// Returns the full address of a node. Returns `None` if the name is not an address, so that it
/// is the name of a client.
fn node(name: &str) -> Result<Option<String>, Failure> {
    if !name.contains(':') {
        return Ok(None);
    }
    let surroundings = Surroundings::of_process();
    let place = Where::Argument("NAME");
    let node = nodes::read(name, &place, std::path::Path::new("/"), &surroundings)?;
    Ok(Some(node.address.to_string()))
}

/// Returns a file in the folder of this user's keys.
fn file(name: &str) -> Result<PathBuf, Failure> {
    let folder = Surroundings::of_process().config_directory().ok_or(Failure::NoHome)?;
    Ok(folder.join(name))
}

fn said(text: &str) -> Result<ExitCode, Failure> {
    table::print(text)?;
    Ok(ExitCode::SUCCESS)
}

//! `penstock key`: the key with which nodes and clients authenticate each other over TCP and
//! vsock.

use std::path::PathBuf;
use std::process::ExitCode;

use penstock_client::config::{Config, Surroundings};
use penstock_link::Key;

use crate::args::KeyArgs;
use crate::failure::Failure;
use crate::table;

/// Shows where the key is and checks that it is usable. Creates one if the arguments ask for it.
pub fn key(args: &KeyArgs) -> Result<ExitCode, Failure> {
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

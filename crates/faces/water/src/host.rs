//! The host on which this rank runs.

use std::path::PathBuf;

use penstock_process::variable;

/// Returns the host's name.
pub fn hostname() -> String {
    // The name's length is part of messages, and simulated times must be the same on every host.
    if crate::simulator::is_there() {
        return "simulated".into();
    }
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the name or address at which other hosts reach this one: `WTR_HOST`, otherwise the host
/// name.
pub fn public_name() -> String {
    variable::WTR_HOST.text().unwrap_or_else(hostname)
}

/// Returns the folder for sockets of this host's ranks.
pub fn socket_folder() -> PathBuf {
    variable::RUNTIME_DIRECTORY.path().unwrap_or_else(std::env::temp_dir)
}

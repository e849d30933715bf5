//! The host on which this rank runs.

/// Returns the host's name.
pub fn hostname() -> String {
    // The name's length is part of messages, and simulated times must be the same on every host.
    if crate::simulator::is_there() {
        return "simulated".into();
    }
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

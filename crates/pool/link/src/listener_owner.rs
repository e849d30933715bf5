//! Whom a client believes that listens on a Unix socket.
//!
//! A Unix socket needs no key, because the kernel says who is at the other end. That protects the
//! client, too: another user of the host can take the place of a socket that is gone, for example
//! in a directory that everybody can write to, and would receive the client's data.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use penstock_process::variable::TRUSTED_USERS;

use crate::address::Address;
use crate::error::LinkError;
use crate::stream::Stream;

/// The user `root`, who could read the client's memory anyway.
const ROOT: u32 = 0;

/// Permission to write, of the group and of all others.
const OTHERS_WRITE: u32 = 0o022;

/// Checks that the process that listens there belongs to the client's user, to root, or to a user
/// whom the client trusts, or that nobody else could have put the socket there. Does nothing for
/// connections that need the pool's key.
///
/// # Errors
/// [`LinkError::Listener`] if it belongs to another user.
pub(crate) fn check(stream: &Stream, address: &Address) -> Result<(), LinkError> {
    if stream.needs_key() {
        return Ok(());
    }
    let Some(listener) = stream.credentials() else { return Ok(()) };
    let own = rustix::process::geteuid().as_raw();
    let trusted = TRUSTED_USERS.value().unwrap_or_default();
    let path = PathBuf::from(&address.endpoint().text);
    if is_trusted(listener.uid, own, &trusted.to_string_lossy())
        || is_outside(listener.uid)
        || is_vouched_for(&path, Path::new("/"), &[ROOT, own, listener.uid])
    {
        return Ok(());
    }
    Err(LinkError::Listener { address: address.to_string(), user: listener.uid })
}

/// `trusted` has the numbers of users, separated by commas.
fn is_trusted(listener: u32, own: u32, trusted: &str) -> bool {
    listener == own
        || listener == ROOT
        || trusted.split(',').any(|user| user.trim().parse() == Ok(listener))
}

/// Returns whether only these users can have put a file there: every directory on the way belongs
/// to one of them, and nobody else can write to it. So `/run/penstock`, which root gave to a
/// daemon's user, vouches for that user, and `/tmp` vouches for nobody. Follows links, and looks at
/// both ways.
/// `top` is the first directory that counts.
fn is_vouched_for(path: &Path, top: &Path, users: &[u32]) -> bool {
    let is_theirs = |folder: &Path| {
        let about = folder.metadata();
        about.is_ok_and(|it| users.contains(&it.uid()) && it.mode() & OTHERS_WRITE == 0)
    };
    let Ok(named) = std::path::absolute(path) else { return false };
    let Some(real) = named.parent().and_then(|folder| folder.canonicalize().ok()) else {
        return false;
    };
    let mut folders = real.ancestors().chain(named.ancestors().skip(1));
    folders.all(|folder| is_theirs(folder) || top.starts_with(folder) && top != folder)
}

/// Returns whether this number stands for users outside of this process's user namespace, as in a
/// container. Such a listener's socket came into the container by a mount, so whoever started the
/// container has chosen it. Inside, nobody can have this number.
fn is_outside(user: u32) -> bool {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    text("/proc/sys/kernel/overflowuid").trim().parse() == Ok(user)
        && maps(&text("/proc/self/uid_map"), user) == Some(false)
}

/// Returns whether a namespace with this map (user_namespaces(7)) has a user with this number.
fn maps(map: &str, user: u32) -> Option<bool> {
    let mut found = None;
    for line in map.lines() {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let first = numbers.next()?.ok()?;
        let count = numbers.nth(1)?.ok()?;
        found = Some(found == Some(true) || (user >= first && user - first < count));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_daemons_those_of_root_and_those_of_trusted_users_are_believed() {
        assert!(is_trusted(1000, 1000, ""));
        assert!(is_trusted(ROOT, 1000, ""));
        assert!(is_trusted(993, 1000, "7, 993"));
        assert!(!is_trusted(1001, 1000, ""));
        assert!(!is_trusted(1001, ROOT, ""));
        assert!(!is_trusted(1001, 1000, "993,10011,penstock,"));
    }

    #[test]
    fn a_directory_vouches_if_only_the_users_can_write_to_it_and_to_those_above() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let own = rustix::process::geteuid().as_raw();
        let folder = std::env::temp_dir().join(format!("penstock-vouch-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("inner")).unwrap();
        let folder = folder.canonicalize().unwrap();
        let is_vouched_for = |path: &Path, users: &[u32]| is_vouched_for(path, &folder, users);
        let mode = |mode| {
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let socket = folder.join("inner/s");
        mode(0o755);
        assert!(is_vouched_for(&socket, &[ROOT, own]));
        assert!(!is_vouched_for(&socket, &[4_000_000_000]));
        let shared = folder.join("shared");
        std::fs::create_dir(&shared).unwrap();
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o1777)).unwrap();
        symlink(&shared, folder.join("inner/out")).unwrap();
        assert!(!is_vouched_for(&folder.join("inner/out/s"), &[ROOT, own]));
        // A way that leads through the shared directory, although its end does not lie there.
        symlink(folder.join("inner"), shared.join("back")).unwrap();
        assert!(!is_vouched_for(&shared.join("back/s"), &[ROOT, own]));
        symlink(folder.join("inner"), folder.join("link")).unwrap();
        assert!(is_vouched_for(&folder.join("link/s"), &[ROOT, own]));
        for shared in [0o775, 0o757, 0o1777] {
            mode(shared);
            assert!(!is_vouched_for(&socket, &[ROOT, own]), "{shared:o}");
        }
        mode(0o755);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_map_tells_whether_a_number_is_a_user_of_the_namespace() {
        assert_eq!(maps("         0          0 4294967295\n", 65_534), Some(true));
        assert_eq!(maps("0 1000 1\n", 65_534), Some(false));
        assert_eq!(maps("0 1000 1\n1 100000 65536\n", 65_534), Some(true));
        assert_eq!(maps("1000 1000 1\n", 1000), Some(true));
        for unreadable in ["", "0 1000", "a b c"] {
            assert_eq!(maps(unreadable, 65_534), None, "{unreadable}");
        }
    }

    #[test]
    fn a_socket_of_this_user_is_believed() {
        let folder = std::env::temp_dir().join(format!("penstock-owner-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let text = format!("unix:{}", folder.join("s").display());
        let address: Address = text.parse().unwrap();
        let _listener = crate::Listener::bind_with_mode(&address, 0o600).unwrap();
        let deadline = penstock_trial::deadline();
        let stream = Stream::connect(&address, deadline).unwrap();
        check(&stream, &address).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

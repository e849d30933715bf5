//! Who a session belongs to.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Owner of sessions, to whom limits apply. Its text is its name in the file of limits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum User {
    /// User of this host, by number. The kernel vouches for it.
    Number(u32),
    /// Holder of a key, by the key's name.
    Key(String),
    /// Host, or network of IPv6; see [`User::of_address`]. All its users count as one.
    Host(IpAddr),
    /// Machine with this vsock number.
    Machine(u32),
    /// Guest whose monitor has its socket at this path.
    Guest(String),
    /// Everybody of whom nothing is known; they count as one.
    Unknown,
}

/// The text names no user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a user; write the number that `id -u NAME` prints, host:ADDRESS, key:NAME, \
     machine:CID, guest:PATH, unknown or default"
)]
pub struct NotAUser(pub String);

const HOST: &str = "host";
const KEY: &str = "key";
const MACHINE: &str = "machine";
const GUEST: &str = "guest";
const UNKNOWN: &str = "unknown";

impl User {
    /// Returns the user for connections from this address. All addresses of an IPv6 network of 64
    /// bits are one user, because a single host has as many of them as it likes (RFC 4291, section
    /// 2.5.4).
    #[must_use]
    pub fn of_address(address: IpAddr) -> Self {
        Self::Host(match address.to_canonical() {
            IpAddr::V6(six) => {
                let [a, b, c, d, ..] = six.segments();
                [a, b, c, d, 0, 0, 0, 0].into()
            }
            four @ IpAddr::V4(_) => four,
        })
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Key(name) => write!(f, "{KEY}:{name}"),
            Self::Host(address) => write!(f, "{HOST}:{address}"),
            Self::Machine(number) => write!(f, "{MACHINE}:{number}"),
            Self::Guest(path) => write!(f, "{GUEST}:{path}"),
            Self::Unknown => f.write_str(UNKNOWN),
        }
    }
}

impl FromStr for User {
    type Err = NotAUser;

    fn from_str(text: &str) -> Result<Self, NotAUser> {
        let wrong = || NotAUser(text.to_owned());
        if let Some((kind, name)) = text.split_once(':') {
            return match kind {
                HOST => name.parse().map(Self::of_address).map_err(|_| wrong()),
                MACHINE => name.parse().map(Self::Machine).map_err(|_| wrong()),
                KEY if !name.is_empty() => Ok(Self::Key(name.to_owned())),
                GUEST if !name.is_empty() => Ok(Self::Guest(name.to_owned())),
                _ => Err(wrong()),
            };
        }
        if text == UNKNOWN {
            return Ok(Self::Unknown);
        }
        // Not "+5" or "007", which would be second names of a user.
        let number: u32 = text.parse().map_err(|_| wrong())?;
        if number.to_string() == text { Ok(Self::Number(number)) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_user_is_its_name() {
        for text in
            ["0", "1000", "key:alice", "host:10.0.0.7", "machine:5", "guest:/r/v", "unknown"]
        {
            assert_eq!(text.parse::<User>().unwrap().to_string(), text);
        }
        for text in ["", "alice", "+5", "007", "-1", "4294967296", "host:gpu01", "key:", "uid:5"] {
            assert_eq!(text.parse::<User>(), Err(NotAUser(text.to_owned())));
        }
    }

    #[test]
    fn addresses_of_one_network_are_one_user() {
        let user = |text: &str| format!("host:{text}").parse::<User>().unwrap();
        assert_eq!(user("2001:db8:1:2:3::4"), user("2001:db8:1:2:ffff::"));
        assert_ne!(user("2001:db8:1:2::1"), user("2001:db8:1:3::1"));
        assert_eq!(user("::ffff:10.0.0.7"), user("10.0.0.7"));
    }
}

//! The addresses at which a daemon or a worker listens.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::LinkError;
use crate::transport;
use crate::transport::contract::{Completion, Destination, Endpoint, Purpose};

/// Address of a daemon or a worker: a scheme, which names the transport, and what the transport
/// makes of the rest.
#[derive(Clone, Debug)]
pub struct Address(Arc<Endpoint>);

/// Address that leads to one destination.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub address: Address,
    pub destination: Destination,
}

/// Returns what is wrong with a text that does not begin with a scheme. If the text may be the name
/// of a host, it says how the reader can write it.
fn unknown_scheme(text: &str) -> String {
    let is_host = |text: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
            && text.bytes().all(is_part)
            && transport::of_scheme(text).is_none()
    };
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    if is_host(host) && is_port {
        return format!("it has no scheme; for a host, write tcp:{text} or ssh:{host}");
    }
    "its scheme is unknown".to_owned()
}

impl Address {
    /// Reads an address and completes what it leaves out.
    ///
    /// # Errors
    /// [`LinkError::Address`] if the text is not an address.
    pub fn read(text: &str, completion: &Completion<'_>) -> Result<Self, LinkError> {
        let wrong = |why| {
            let forms = transport::forms(&[]);
            LinkError::Address { text: text.to_owned(), why, forms }
        };
        let named = text
            .split_once(':')
            .and_then(|(scheme, rest)| Some((transport::of_scheme(scheme)?, rest)));
        let (transport, rest) = named.ok_or_else(|| wrong(unknown_scheme(text)))?;
        (transport.read)(rest, completion).map(Self::new).map_err(wrong)
    }

    /// Reads the address of a listener that leaves nothing out.
    ///
    /// # Errors
    /// [`LinkError::Address`] if the text is not an address.
    pub fn for_listener(text: &str) -> Result<Self, LinkError> {
        let path = &|path: &str| path.into();
        Self::read(text, &Completion { port: None, path, purpose: Purpose::Listen })
    }

    /// Returns the forms of addresses, and then `more`, as a list for a message: "A, B or C".
    pub fn forms(more: &[&str]) -> String {
        transport::forms(more)
    }

    /// Reads an address that another process has named. Refuses one at which this process would
    /// [log in](Address::logs_in): a stranger must not use the identity of its user.
    ///
    /// # Errors
    /// [`LinkError::Address`] if the text is not an address, or one that only a user may name.
    pub fn of_stranger(text: &str) -> Result<Self, LinkError> {
        let address: Self = text.parse()?;
        if address.logs_in() {
            let (text, why) = (text.to_owned(), "only a user logs in there".to_owned());
            return Err(LinkError::Address { text, why, forms: transport::forms(&[]) });
        }
        Ok(address)
    }

    /// Returns where connections to this address lead, each as an address of its own. Returns
    /// nothing if only a user may name the address.
    ///
    /// # Errors
    /// Fails if a name has no numeric address. The search for it may take longer than a hello.
    pub fn resolve(&self) -> Result<Vec<Resolved>, LinkError> {
        let found = self.0.reach.resolve().map_err(|source| self.failure(source))?.into_iter();
        let resolved =
            |(destination, endpoint)| Resolved { address: Self::new(endpoint), destination };
        Ok(found.map(resolved).collect())
    }

    /// Returns whether connecting logs in on another host with the identity of this process's user.
    pub fn logs_in(&self) -> bool {
        self.0.logs_in
    }

    /// Returns whether the address is valid only on the host where it was made.
    pub fn is_local(&self) -> bool {
        self.0.is_local
    }

    /// Returns the name or the numeric address of the host, if the address has one.
    pub fn host(&self) -> Option<&str> {
        self.0.host.as_deref()
    }

    /// Returns the port, if the address has a host and a port of it.
    pub fn port(&self) -> Option<u16> {
        self.0.port
    }

    /// Returns whether strangers could connect there, so that both sides must prove that they have
    /// the pool's key.
    pub fn needs_key(&self) -> bool {
        self.0.transport.needs_key
    }

    /// Returns the rank among several addresses of one daemon. Lower is better.
    pub fn rank(&self) -> u8 {
        self.0.transport.rank
    }

    /// Returns the name of the transport for messages.
    pub fn transport_name(&self) -> &'static str {
        self.0.transport.name
    }

    /// Returns the address under which other nodes of the pool reach a listener with this address,
    /// or `None` if none of them does. `host` is the name of this host. It replaces a wildcard.
    #[must_use]
    pub fn advertised(&self, host: &str) -> Option<Self> {
        self.0.reach.advertised(host).map(Self::new)
    }

    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self(Arc::new(endpoint))
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.0
    }

    /// Returns the error for a connection that failed.
    pub(crate) fn failure(&self, source: io::Error) -> LinkError {
        let address = self.to_string();
        if self.0.logs_in {
            let is_lasting = source.kind() == io::ErrorKind::PermissionDenied;
            return LinkError::Login { address, why: source.to_string(), is_lasting };
        }
        LinkError::Connect { address, source }
    }

    /// What equal addresses have in common.
    fn identity(&self) -> (&'static str, &OsStr) {
        (self.0.transport.scheme, &self.0.text)
    }
}

impl FromStr for Address {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        let path = &|path: &str| path.into();
        Self::read(text, &Completion { port: None, path, purpose: Purpose::Connect })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.transport.scheme, self.0.text.display())
    }
}

impl PartialEq for Address {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Address {}

impl Hash for Address {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl PartialOrd for Address {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Address {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank()).then_with(|| self.identity().cmp(&other.identity()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn addresses_survive_a_round_trip() {
        for text in [
            "unix:/run/penstock/sock",
            "tcp:node-7:4567",
            "tcp:[::1]:1",
            "tcp:[fe80::1%eth0]:65535",
            "tcp:0.0.0.0:0",
            "ssh:gpu01",
            "ssh:alice@[::1]:2222",
        ] {
            let address = text.parse::<Address>().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address, text.parse().unwrap());
        }
        assert_eq!(Address::tcp("::1", 1).to_string(), "tcp:[::1]:1");
        assert_eq!(Address::unix("/a"), "unix:/a".parse().unwrap());
        assert_ne!(Address::unix("a:1"), Address::tcp("a", 1));
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for (text, why) in [
            ("", "its scheme is unknown"),
            ("unix", "its scheme is unknown"),
            ("unix:", "the path is missing"),
            ("tcp:", "the host is missing"),
            ("tcp:host", "the port is missing"),
            ("tcp:host:99999", "not a number from 0 to 65535"),
            ("tcp:::1:5", "needs brackets"),
            ("tcp:[::1:5", "a bracket is not closed"),
            ("tcp:[::1]5", "only a port follows"),
            ("tcp:[]:5", "the host is missing"),
            ("tcp::5", "the host is missing"),
            ("http://x", "its scheme is unknown"),
            ("unix:a\0b", "a zero byte"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("is not an address") && error.contains(why), "{error}");
            assert!(error.contains("write unix:PATH"), "{error}");
        }
    }

    #[test]
    fn an_address_is_completed_where_it_leaves_something_out() {
        let path = &|path: &str| PathBuf::from("/home").join(path);
        let completion = Completion { port: Some(7), path, purpose: Purpose::Connect };
        for (text, complete) in [
            ("tcp:host", "tcp:host:7"),
            ("tcp:host:1", "tcp:host:1"),
            ("ssh:host", "ssh:host"),
            ("tcp:[::1]", "tcp:[::1]:7"),
            ("tcp:[::1]:1", "tcp:[::1]:1"),
            ("unix:a", "unix:/home/a"),
        ] {
            assert_eq!(Address::read(text, &completion).unwrap().to_string(), complete);
        }
        assert!(Address::read("tcp:", &completion).is_err());
        assert!(Address::read("tcp:host:", &completion).is_err());
    }

    #[test]
    fn wildcards_are_advertised_with_the_name_of_the_host() {
        let advertised = |address: &Address| address.advertised("node7").unwrap().to_string();
        assert_eq!(advertised(&Address::tcp("0.0.0.0", 1)), "tcp:node7:1");
        assert_eq!(advertised(&Address::tcp("::", 1)), "tcp:node7:1");
        assert_eq!(advertised(&Address::tcp("10.0.0.1", 1)), "tcp:10.0.0.1:1");
        let here = std::env::current_dir().unwrap();
        assert_eq!(Address::unix("a").advertised("node7"), Some(Address::unix(here.join("a"))));
    }

    #[test]
    fn a_stranger_cannot_name_a_login() {
        assert!(Address::of_stranger("tcp:a:1").is_ok() && Address::of_stranger("unix:/a").is_ok());
        let error = Address::of_stranger("ssh:a").unwrap_err().to_string();
        assert!(error.contains("only a user logs in there"), "{error}");
        let login: Address = "ssh:alice@a".parse().unwrap();
        assert!(login.logs_in() && !login.is_local() && login.host() == Some("a"));
        assert!(!login.needs_key() && login.rank() > Address::tcp("a", 1).rank());
        assert_eq!(login.advertised("here"), None);
        assert!(Address::for_listener("ssh:a").is_err());
    }

    #[test]
    fn an_address_says_where_it_leads() {
        let of = |text: &str| text.parse::<Address>().unwrap().resolve().unwrap();
        let first = |text: &str| {
            let resolved = of(text);
            (resolved[0].destination, resolved[0].address.to_string())
        };
        assert_eq!(first("unix:/a"), (Destination::File, "unix:/a".to_owned()));
        let here = Destination::Host("127.0.0.1".parse().unwrap());
        assert_eq!(first("tcp:127.0.0.1:7"), (here, "tcp:127.0.0.1:7".to_owned()));
        // The name is gone: a second look-up could give another address.
        assert!(of("tcp:localhost:7").iter().all(|it| !it.address.to_string().contains("local")));
        assert_eq!(first("vsock:2:7"), (Destination::Machine(2), "vsock:2:7".to_owned()));
        // A user logs in at the first, and the second is any socket of this host.
        assert!(of("ssh:a").is_empty() && of("vsock:/run/a.sock:7").is_empty());
    }

    #[test]
    fn a_local_address_comes_before_one_of_a_network() {
        let (local, remote) = (Address::unix("/z"), Address::tcp("a", 1));
        assert!(local < remote && local.rank() < remote.rank());
        assert!(local.is_local() && !local.needs_key() && local.host().is_none());
        assert!(!remote.is_local() && remote.needs_key() && remote.host() == Some("a"));
    }
}

//! The addresses at which a daemon or a worker listens.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::LinkError;

/// Address of a daemon or a worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A Unix socket: `unix:PATH`.
    Unix(PathBuf),
    /// TCP port: `tcp:HOST:PORT` or `tcp:[V6]:PORT`.
    Tcp {
        /// Host name or IP address, without brackets.
        host: String,
        /// Port; a listener takes 0 for any free port.
        port: u16,
    },
}

impl FromStr for Address {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        let wrong = |why| LinkError::Address { text: text.to_owned(), why };
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() || path.contains('\0') {
                return Err(wrong("the path is missing or has a zero byte"));
            }
            return Ok(Self::Unix(path.into()));
        }
        let rest = text
            .strip_prefix("tcp:")
            .ok_or_else(|| wrong("it starts with neither unix: nor tcp:"))?;
        let (host, port) = rest.rsplit_once(':').ok_or_else(|| wrong("the port is missing"))?;
        let port = port.parse().map_err(|_| wrong("the port is not a number from 0 to 65535"))?;
        let host = match host.strip_prefix('[') {
            Some(v6) => v6.strip_suffix(']').ok_or_else(|| wrong("a bracket is not closed"))?,
            None if host.contains(':') => return Err(wrong("an IPv6 host needs brackets")),
            None => host,
        };
        if host.is_empty() {
            return Err(wrong("the host is missing"));
        }
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_a_round_trip() {
        for text in [
            "unix:/run/penstock/sock",
            "tcp:node-7:4567",
            "tcp:[::1]:1",
            "tcp:[fe80::1%eth0]:65535",
            "tcp:0.0.0.0:0",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for text in [
            "",
            "unix:",
            "tcp:",
            "tcp:host",
            "tcp:host:99999",
            "tcp:::1:5",
            "tcp:[::1:5",
            "tcp::5",
            "http://x",
            "unix:a\0b",
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("is not an address"), "{error}");
        }
    }
}

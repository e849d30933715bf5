//! What a bridge says first, and what stands before it.
//!
//! The login scripts of a user may write to standard output before the bridge starts: a message of
//! the day, the output of `.bashrc`. A bridge therefore begins with a line that cannot be part of
//! such text: it has two control characters. The client skips what stands before that line, up to a
//! limit.

use std::net::SocketAddr;

use zeroize::Zeroizing;

use crate::invitation::{Invitation, Offer};
use crate::key;

/// Start of the line. The line feed ends a line of the login scripts that has none.
const MAGIC: &[u8] = b"\n\x1epenstock-bridge\x1e ";

/// Version of the line. A client refuses a later one.
const VERSION: &str = "1";

/// Most bytes that login scripts may write: a long message of the day has 4 KiB.
pub(super) const NOISE_BYTES_MAX: usize = 64 << 10;

/// Longest rest of the line, in bytes: the version, a user's number, a release, and an invitation,
/// together 224.
const LINE_BYTES_MAX: usize = 256;

/// Words of the line: the port of a direct connection or why there is none, the address, the public
/// key of the daemon, and the secret of the one-time key.
const DIRECT: &str = "direct=";
const AT: &str = "at=";
const KEY: &str = "key=";
const ONCE: &str = "once=";

/// Values of [`DIRECT`] without a port.
const FORBIDDEN: &str = "never";
const UNAVAILABLE: &str = "none";

/// First port that any user may listen at, which is the lowest that a system chooses. A hostile
/// node must not make its clients knock at the services of other hosts.
const PORT_MIN: u16 = 1024;

/// What a bridge tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    /// Number of the user on the node. The daemon belongs to that user.
    pub(super) user: u32,
    /// What the bridge offers besides this connection.
    pub(super) offer: Offer,
}

/// Why there is no greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoGreeting {
    /// The login scripts write more than [`NOISE_BYTES_MAX`].
    TooMuchNoise,
    /// The bridge is of a release that this one does not understand.
    OtherVersion,
    /// Something stands where the greeting should be, or behind it.
    Garbled,
}

/// Returns the line with which a bridge of this release begins.
pub(crate) fn line(user: u32, offer: &Offer) -> Zeroizing<Vec<u8>> {
    let words = match offer {
        Offer::NotAsked => Zeroizing::default(),
        Offer::Forbidden => Zeroizing::new(format!(" {DIRECT}{FORBIDDEN}")),
        Offer::Unavailable => Zeroizing::new(format!(" {DIRECT}{UNAVAILABLE}")),
        Offer::Invitation(it) => Zeroizing::new(format!(
            " {DIRECT}{} {AT}{} {KEY}{} {ONCE}{}",
            it.address.port(),
            it.address.ip(),
            it.node,
            *it.digits()
        )),
    };
    let release = env!("CARGO_PKG_VERSION");
    let rest = Zeroizing::new(format!("{VERSION} user={user} release={release}{}\n", *words));
    Zeroizing::new([MAGIC, rest.as_bytes()].concat())
}

/// Looks for the line in what comes.
#[derive(Debug, Default)]
pub(super) struct Listening {
    heard: Zeroizing<Vec<u8>>,
    /// Offset behind the magic, if that has come.
    rest: Option<usize>,
}

impl Listening {
    /// Takes the next bytes. Returns `None` if the line has not come yet.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Result<Option<Greeting>, NoGreeting> {
        // The magic may have begun in earlier bytes.
        let from = self.heard.len().saturating_sub(MAGIC.len() - 1);
        self.heard.extend_from_slice(bytes);
        if self.rest.is_none() {
            let new = self.heard.get(from..).unwrap_or_default();
            let found = new.windows(MAGIC.len()).position(|window| window == MAGIC);
            self.rest = found.map(|at| from + at + MAGIC.len());
        }
        let Some(rest) = self.rest else {
            if self.heard.len() > NOISE_BYTES_MAX {
                return Err(NoGreeting::TooMuchNoise);
            }
            return Ok(None);
        };
        let rest = self.heard.get(rest..).unwrap_or_default();
        match rest.iter().position(|byte| *byte == b'\n') {
            // The daemon speaks only when it is spoken to, so nothing follows.
            Some(end) if end + 1 == rest.len() && end <= LINE_BYTES_MAX => {
                read(rest.get(..end).unwrap_or_default()).map(Some)
            }
            None if rest.len() <= LINE_BYTES_MAX => Ok(None),
            _ => Err(NoGreeting::Garbled),
        }
    }

    /// Returns what has come so far.
    pub(super) fn noise(&self) -> &[u8] {
        &self.heard
    }
}

/// Reads the rest of the line. Unknown words are those of a later release.
fn read(rest: &[u8]) -> Result<Greeting, NoGreeting> {
    let text = str::from_utf8(rest).map_err(|_| NoGreeting::Garbled)?;
    let mut words = text.split(' ');
    let offer = read_offer(words.clone());
    match words.next() {
        Some(VERSION) => {}
        Some(other) if other.parse::<u32>().is_ok() => return Err(NoGreeting::OtherVersion),
        _ => return Err(NoGreeting::Garbled),
    }
    let user = words.find_map(|word| word.strip_prefix("user=")).and_then(|it| it.parse().ok());
    let offer = offer.ok_or(NoGreeting::Garbled)?;
    user.map(|user| Greeting { user, offer }).ok_or(NoGreeting::Garbled)
}

/// Reads what a bridge offers. Returns `None` if words are missing or wrong.
fn read_offer<'a>(words: impl Iterator<Item = &'a str> + Clone) -> Option<Offer> {
    let value = |name| words.clone().find_map(|word: &str| word.strip_prefix(name));
    let port = match value(DIRECT) {
        None => return Some(Offer::NotAsked),
        Some(FORBIDDEN) => return Some(Offer::Forbidden),
        Some(UNAVAILABLE) => return Some(Offer::Unavailable),
        Some(port) => port.parse().ok().filter(|port| *port >= PORT_MIN)?,
    };
    let address = SocketAddr::new(value(AT)?.parse().ok()?, port);
    let secret = Zeroizing::new(key::parse(value(ONCE)?)?);
    Some(Offer::Invitation(Invitation::new(address, value(KEY)?.parse().ok()?, &secret)))
}

#[cfg(test)]
mod tests {
    use penstock_tls::PublicKey;

    use super::*;

    fn hear(pieces: &[&[u8]]) -> Result<Option<Greeting>, NoGreeting> {
        let mut listening = Listening::default();
        let mut last = Ok(None);
        for piece in pieces {
            assert_eq!(last, Ok(None), "it said more after the greeting");
            last = listening.hear(piece);
        }
        last
    }

    #[test]
    fn the_line_is_found_behind_any_noise_and_in_any_pieces() {
        let offers =
            [Offer::NotAsked, Offer::Forbidden, Offer::Unavailable, longest(), short()];
        for offer in offers {
            is_found_in_any_pieces(&offer);
        }
    }

    fn short() -> Offer {
        let address = "127.0.0.1:1024".parse().unwrap();
        Offer::Invitation(Invitation::new(address, PublicKey::from_bytes([9; 32]), &[7; 32]))
    }

    fn longest() -> Offer {
        let address = "[fedc:ba98:7654:3210:fedc:ba98:7654:3210]:65535".parse().unwrap();
        Offer::Invitation(Invitation::new(address, PublicKey::from_bytes([255; 32]), &[255; 32]))
    }

    fn is_found_in_any_pieces(offer: &Offer) {
        let expected = Ok(Some(Greeting { user: u32::MAX, offer: offer.clone() }));
        let nearly = ["\n\x1epenstock-bridge\x1d ", "\n\x1e\n\x1epenstock-"];
        for noise in ["", "hello", "hello\n"].into_iter().chain(nearly) {
            let all = [noise.as_bytes(), &line(u32::MAX, offer)].concat();
            assert_eq!(hear(&[&all]), expected, "{noise:?}");
            for cut in 0..all.len() {
                let (one, other) = all.split_at(cut);
                assert_eq!(hear(&[one, other]), expected, "{noise:?} cut at {cut}");
            }
            let bytes: Vec<&[u8]> = all.chunks(1).collect();
            assert_eq!(hear(&bytes), expected, "{noise:?}");
        }
    }

    #[test]
    fn noise_has_a_limit() {
        let most = vec![b'x'; NOISE_BYTES_MAX];
        assert_eq!(hear(&[&most]), Ok(None));
        assert_eq!(hear(&[&most, b"x"]), Err(NoGreeting::TooMuchNoise));
        let long = [MAGIC, &[b'1'; LINE_BYTES_MAX + 1]].concat();
        assert_eq!(hear(&[&long]), Err(NoGreeting::Garbled));
    }

    #[test]
    fn an_offer_is_whole_or_refused() {
        let line = line(5, &short());
        let text = str::from_utf8(line.get(MAGIC.len()..).unwrap()).unwrap();
        let words: Vec<&str> = text.trim_end().split(' ').collect();
        let hear = |words: &[&str]| {
            hear(&[&[MAGIC, words.join(" ").as_bytes(), b"\n"].concat()])
        };
        assert_eq!(hear(&words), Ok(Some(Greeting { user: 5, offer: short() })));
        for name in [AT, KEY, ONCE] {
            let at = words.iter().position(|word| word.starts_with(name)).unwrap();
            let mut fewer = words.clone();
            let whole = fewer.remove(at);
            assert_eq!(hear(&fewer), Err(NoGreeting::Garbled), "{name}");
            let mut cut = words.clone();
            cut[at] = &whole[..whole.len() - 1];
            // Without its last digit, this address is none.
            assert_eq!(hear(&cut), Err(NoGreeting::Garbled), "{name}");
        }
        for port in ["direct=0", "direct=1023", "direct=65536", "direct=", "direct=x"] {
            let mut other = words.clone();
            other[3] = port;
            assert_eq!(hear(&other), Err(NoGreeting::Garbled), "{port}");
        }
        assert!(longest_line() <= LINE_BYTES_MAX, "{}", longest_line());
    }

    fn longest_line() -> usize {
        line(u32::MAX, &longest()).len() - MAGIC.len()
    }

    #[test]
    fn other_lines_are_refused() {
        let garbled = Err(NoGreeting::Garbled);
        let of = |rest: &str| hear(&[&[MAGIC, rest.as_bytes()].concat()]);
        assert_eq!(of("2 user=5\n"), Err(NoGreeting::OtherVersion));
        let greeting = Greeting { user: 5, offer: Offer::NotAsked };
        assert_eq!(of("1 later=x user=5 more\n"), Ok(Some(greeting)));
        for rest in ["\n", "x\n", "1\n", "1 user=\n", "1 user=-1\n", "1 user=5\nmore"] {
            assert_eq!(of(rest), garbled, "{rest:?}");
        }
        assert_eq!(hear(&[MAGIC, b"1 user=5 \xff\n"]), garbled);
    }
}

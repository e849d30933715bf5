//! What a bridge says first, and what stands before it.
//!
//! The login scripts of a user may write to standard output before the bridge starts: a message of
//! the day, the output of `.bashrc`. A bridge therefore begins with a line that cannot be part of
//! such text: it has two control characters. The client skips what stands before that line, up to a
//! limit.

/// Start of the line. The line feed ends a line of the login scripts that has none.
const MAGIC: &[u8] = b"\n\x1epenstock-bridge\x1e ";

/// Version of the line. A client refuses a later one.
const VERSION: &str = "1";

/// Most bytes that login scripts may write: a long message of the day has 4 KiB.
pub(super) const NOISE_BYTES_MAX: usize = 64 << 10;

/// Longest rest of the line, in bytes: the version, a user's number, and a release.
const LINE_BYTES_MAX: usize = 256;

/// What a bridge tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    /// Number of the user on the node. The daemon belongs to that user.
    pub(super) user: u32,
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
pub(crate) fn line(user: u32) -> Vec<u8> {
    let rest = format!("{VERSION} user={user} release={}\n", env!("CARGO_PKG_VERSION"));
    [MAGIC, rest.as_bytes()].concat()
}

/// Looks for the line in what comes.
#[derive(Debug, Default)]
pub(super) struct Listening {
    heard: Vec<u8>,
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
    match words.next() {
        Some(VERSION) => {}
        Some(other) if other.parse::<u32>().is_ok() => return Err(NoGreeting::OtherVersion),
        _ => return Err(NoGreeting::Garbled),
    }
    let user = words.find_map(|word| word.strip_prefix("user=")).and_then(|it| it.parse().ok());
    user.map(|user| Greeting { user }).ok_or(NoGreeting::Garbled)
}

#[cfg(test)]
mod tests {
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
        let expected = Ok(Some(Greeting { user: 1000 }));
        let nearly = ["\n\x1epenstock-bridge\x1d ", "\n\x1e\n\x1epenstock-"];
        for noise in ["", "hello", "hello\n"].into_iter().chain(nearly) {
            let all = [noise.as_bytes(), &line(1000)].concat();
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
    fn other_lines_are_refused() {
        let garbled = Err(NoGreeting::Garbled);
        let of = |rest: &str| hear(&[&[MAGIC, rest.as_bytes()].concat()]);
        assert_eq!(of("2 user=5\n"), Err(NoGreeting::OtherVersion));
        assert_eq!(of("1 later=x user=5 more\n"), Ok(Some(Greeting { user: 5 })));
        for rest in ["\n", "x\n", "1\n", "1 user=\n", "1 user=-1\n", "1 user=5\nmore"] {
            assert_eq!(of(rest), garbled, "{rest:?}");
        }
        assert_eq!(hear(&[MAGIC, b"1 user=5 \xff\n"]), garbled);
    }
}

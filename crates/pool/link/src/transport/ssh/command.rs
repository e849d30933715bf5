//! The command line of `ssh`: which program, with which options, and what it runs on the node.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use penstock_process::variable::{SSH, SSH_BRIDGE};
use aws_lc_rs::digest::{SHA256, digest};

use super::super::host_port;

/// Program without [`SSH`].
const SSH_DEFAULT: &str = "ssh";

/// Command on the node without [`SSH_BRIDGE`].
const BRIDGE_DEFAULT: &str = "penstock bridge";

/// Option of the bridge for a session that may be direct. It comes behind the user's command.
const WISH_DIRECT: &str = " --direct";

/// Time in seconds for the connection and the exchange of keys. A node that is switched off costs
/// this time, so it is not longer. A login over two jump hosts takes about 3 s.
const CONNECT_S: u32 = 10;

/// Interval in seconds at which `ssh` asks a silent server for a sign of life.
const ALIVE_INTERVAL_S: u32 = 5;

/// Number of questions without an answer that `ssh` accepts. It gives up one interval after the
/// last of them.
const ALIVE_COUNT: u32 = 2;

/// Time in seconds after which `ssh` gives up a silent node. A server answers while its programs
/// compute, so only a lost network or machine is silent for that long.
pub(super) const SILENCE_S: u32 = ALIVE_INTERVAL_S * (ALIVE_COUNT + 1);

/// Time in seconds for which a shared connection outlives its last use. The program of `penstock
/// run` may read its input for minutes before it opens its session, and must then find the
/// connection for which its user has typed a password. The guard ends the connection earlier.
const SHARED_IDLE_S: u32 = 600;

/// Longest path of a socket for which `ssh` has room: 108 bytes with the final zero, less the 17
/// characters that `ssh` appends while it makes the socket.
const SHARED_PATH_BYTES_MAX: usize = 108 - 1 - 17;

/// Whom `ssh` may ask for passwords and unknown host keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    Nobody,
    /// The person at the terminal.
    Person,
}

/// What the text of an address names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Login {
    /// Name of the host or of an entry in the user's configuration of SSH, without brackets.
    pub(super) host: String,
    pub(super) user: Option<String>,
    pub(super) port: Option<u16>,
}

impl Login {
    /// Reads `[USER@]HOST[:PORT]`. Takes no name that `ssh` or a shell could take for anything
    /// else: an address can come from a file or a job script.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let (user, place) = match text.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, text),
        };
        let (host, port) = host_port::split(place)?;
        let port = match port.map(str::parse) {
            None => None,
            Some(Ok(port)) if port != 0 => Some(port),
            Some(_) => return Err("the port is not a number from 1 to 65535".to_owned()),
        };
        if host.is_empty() || user == Some("") {
            return Err("the host or the user is missing".to_owned());
        }
        if !is_plain(host) || !user.is_none_or(is_plain) {
            return Err("a name begins with `-`, or has characters other than letters, digits and \
                        `.-_:%@+`; give the host a plain name in ~/.ssh/config"
                .to_owned());
        }
        Ok(Self { host: host.to_owned(), user: user.map(str::to_owned), port })
    }

    /// Returns the text that [`Login::read`] reads.
    pub(super) fn text(&self) -> String {
        let user = self.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        let host = match &self.host {
            v6 if v6.contains(':') => format!("[{v6}]"),
            host => host.clone(),
        };
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{user}{host}{port}")
    }

    /// Returns the command with which a person tries the same login.
    pub(super) fn by_hand(&self) -> String {
        let port = self.port.map(|port| format!("-p {port} ")).unwrap_or_default();
        let user = self.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        format!("ssh {port}{user}{}", self.host)
    }
}

fn is_plain(name: &str) -> bool {
    !name.starts_with('-')
        && name.chars().all(|it| it.is_ascii_alphanumeric() || ".-_:%@+".contains(it))
}

/// Program and options of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Words of the command, at least one.
    words: Vec<String>,
    /// Command on the node.
    bridge: String,
}

impl Program {
    /// Reads the environment.
    pub(super) fn configured() -> Result<Self, String> {
        let words = split(&SSH.text().unwrap_or_else(|| SSH_DEFAULT.to_owned()))
            .filter(|words| !words.is_empty())
            .ok_or_else(|| format!("variable {}: a quote is not closed", SSH.name))?;
        let bridge = SSH_BRIDGE.text().unwrap_or_else(|| BRIDGE_DEFAULT.to_owned());
        Ok(Self { words, bridge })
    }

    /// Returns the name or path of the program.
    pub(super) fn name(&self) -> &str {
        self.words.first().map_or(SSH_DEFAULT, String::as_str)
    }

    /// Returns all words of the command line for a login. `wants_direct` says whether the bridge
    /// shall ask its daemon for a one-time key.
    pub(super) fn command(
        &self,
        login: &Login,
        asking: Asking,
        wants_direct: bool,
        shared: Option<&Path>,
    ) -> Vec<OsString> {
        let mut words: Vec<OsString> = self.words.iter().map(Into::into).collect();
        // No terminal, no X11, no agent, no escape character: only bytes.
        words.extend(["-T", "-x", "-a", "-e", "none"].map(Into::into));
        let batch = if asking == Asking::Nobody { "yes" } else { "no" };
        let options = [
            format!("BatchMode={batch}"),
            format!("ConnectTimeout={CONNECT_S}"),
            format!("ServerAliveInterval={ALIVE_INTERVAL_S}"),
            format!("ServerAliveCountMax={ALIVE_COUNT}"),
            // Each of these, in the user's configuration, is for sessions of a person.
            "ClearAllForwardings=yes".to_owned(),
            "RemoteCommand=none".to_owned(),
            "PermitLocalCommand=no".to_owned(),
            // The reasons of failures are messages of this level.
            "LogLevel=INFO".to_owned(),
        ];
        for option in options.into_iter().chain(shared.into_iter().flat_map(sharing)) {
            words.extend(["-o".into(), option.into()]);
        }
        if let Some(port) = login.port {
            words.extend(["-p".into(), port.to_string().into()]);
        }
        if let Some(user) = &login.user {
            words.extend(["-l".into(), user.into()]);
        }
        let bridge = format!("{}{}", self.bridge, if wants_direct { WISH_DIRECT } else { "" });
        words.extend(["--".into(), (&login.host).into(), bridge.into()]);
        words
    }

    /// Returns the socket in `folder` of the connection that processes share for a login, or `None`
    /// if its path would be too long. The name is a digest of all that makes the login: two logins
    /// must never share one connection.
    pub(super) fn shared(&self, login: &Login, folder: &Path) -> Option<PathBuf> {
        let all = format!("{:?} {:?}", self.words, login);
        let name: String =
            digest(&SHA256, all.as_bytes()).as_ref().iter().take(8).map(hex).collect();
        let path = folder.join(format!("{SHARED_PREFIX}{name}"));
        // `ssh` expands `%` in the path, and a space separates its words.
        let is_usable = path.as_os_str().len() <= SHARED_PATH_BYTES_MAX
            && path.to_str().is_some_and(|path| !path.contains(['%', ' ', '"', '\'', '\\', '$']));
        is_usable.then_some(path)
    }

    /// Returns the command that ends a shared connection.
    pub(super) fn end_shared(&self, socket: &Path) -> Vec<OsString> {
        let mut path = OsString::from("ControlPath=");
        path.push(socket);
        let mut words: Vec<OsString> = self.words.iter().map(Into::into).collect();
        words.extend(["-O".into(), "exit".into(), "-o".into(), path]);
        // The host is not looked at.
        words.extend(["--", "penstock"].map(Into::into));
        words
    }
}

/// Start of the names of sockets of shared connections.
pub(super) const SHARED_PREFIX: &str = "ssh-";

fn hex(byte: &u8) -> String {
    format!("{byte:02x}")
}

fn sharing(socket: &Path) -> [String; 3] {
    [
        "ControlMaster=auto".to_owned(),
        format!("ControlPath={}", socket.display()),
        format!("ControlPersist={SHARED_IDLE_S}"),
    ]
}

/// Splits a command into words at white space. A part in quotes stays together. Returns `None` if a
/// quote is not closed.
fn split(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in command.chars() {
        match quote {
            Some(open) if open == letter => quote = None,
            Some(_) => word.get_or_insert_default().push(letter),
            None if letter == '"' || letter == '\'' => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            None if letter.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(text: &str) -> Login {
        Login::read(text).unwrap()
    }

    #[test]
    fn logins_survive_a_round_trip() {
        let v6 = ["alice@[fe80::1%eth0]:22", "[::1]"];
        for text in ["gpu01", "alice@gpu02", "a@b@c", "gpu01:2222"].into_iter().chain(v6) {
            assert_eq!(login(text).text(), text);
        }
        assert_eq!(login("alice@h:5").by_hand(), "ssh -p 5 alice@h");
    }

    #[test]
    fn names_that_ssh_or_a_shell_could_misunderstand_are_refused() {
        for text in [
            "-oProxyCommand=x",
            "a@-oProxyCommand",
            "-l@host",
            "a b",
            "a;b",
            "$(x)",
            "`x`",
            "a\nb",
            "",
            "@",
            "a@",
            "@a",
            "a:",
            "a:0",
            "a:65536",
            "a:b",
            "::1",
            "[::1",
            "[::1]2",
            "ä",
        ] {
            assert!(Login::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_command_is_split_as_a_shell_does_it() {
        let words = |text| split(text).unwrap().join("|");
        assert_eq!(words("ssh"), "ssh");
        assert_eq!(words("  ssh  -F 'a b' -i\"c d\"e "), "ssh|-F|a b|-ic de");
        assert_eq!(words("ssh ''"), "ssh|");
        assert_eq!(split("ssh 'a"), None);
        assert_eq!(split(" "), Some(Vec::new()));
    }

    #[test]
    fn the_host_comes_behind_the_end_of_the_options() {
        let program = Program { words: vec!["ssh".into(), "-F".into()], bridge: "x bridge".into() };
        let command = program.command(&login("alice@h:7"), Asking::Nobody, false, None);
        let text: Vec<_> = command.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(text[..2], ["ssh", "-F"]);
        assert_eq!(text[text.len() - 7..], ["-p", "7", "-l", "alice", "--", "h", "x bridge"]);
        assert!(text.contains(&"BatchMode=yes"));
        assert!(!text.iter().any(|word| word.starts_with("Control")));
        let socket = program.shared(&login("h"), Path::new("/run/x")).unwrap();
        let command = program.command(&login("h"), Asking::Person, true, Some(&socket));
        let path = format!("ControlPath={}", socket.display());
        assert!(command.contains(&path.into()) && command.contains(&"BatchMode=no".into()));
        assert_eq!(command.last().unwrap(), "x bridge --direct");
    }

    #[test]
    fn two_logins_never_share_a_connection() {
        let program = Program { words: vec!["ssh".into()], bridge: String::new() };
        let other = Program { words: vec!["ssh".into(), "-F".into()], bridge: String::new() };
        let folder = Path::new("/run/x");
        let sockets = [
            program.shared(&login("a"), folder),
            program.shared(&login("b"), folder),
            program.shared(&login("u@a"), folder),
            program.shared(&login("a:22"), folder),
            other.shared(&login("a"), folder),
        ];
        let distinct: std::collections::BTreeSet<_> = sockets.iter().flatten().collect();
        assert_eq!(distinct.len(), sockets.len());
        assert_eq!(program.shared(&login("a"), Path::new(&format!("/{}", "x".repeat(70)))), None);
        assert_eq!(program.shared(&login("a"), Path::new("/run/%h")), None);
    }
}

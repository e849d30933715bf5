//! Why `ssh` did not reach a bridge, or ended, in words for the user.
//!
//! `ssh` has one exit status for all its own failures, 255, and tells them apart only in its
//! messages. Those are in English on every system.

use super::banner::{NOISE_BYTES_MAX, NoGreeting};
use super::command::Login;

/// Exit status of `ssh` for failures of its own. Any other status is that of the bridge.
const SSH_FAILED: i32 = 255;
/// Exit status of a shell that does not find a program.
const NOT_FOUND: i32 = 127;
/// Exit status of a shell that may not execute a program.
const NOT_EXECUTABLE: i32 = 126;

/// Start of the line that gives the exit status. The shell that waits for `ssh` writes it behind
/// the messages.
pub(super) const EXIT_LINE: &str = "\u{1e}penstock-ssh-exit ";

/// Longest quotation of a message, in characters: two lines of a terminal.
const QUOTED_CHARS_MAX: usize = 160;

/// End of an `ssh`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct End {
    /// Exit status, if it has ended and that was reported.
    status: Option<i32>,
    /// Last message of `ssh` or of the bridge, without control characters.
    last: Option<String>,
    cause: Cause,
}

/// Cause that the messages of `ssh` name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Cause {
    #[default]
    Other,
    HostKeyChanged,
    HostKeyUnknown,
    NotLetIn,
    NameUnknown,
    Refused,
    TimedOut,
    NoWay,
    Silent,
    TooManyAtOnce,
    OldSsh,
    OldPenstock,
}

/// Texts in the messages, and what they mean. The first one that is found counts.
const CAUSES: [(&str, Cause); 16] = [
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", Cause::HostKeyChanged),
    ("Host key verification failed", Cause::HostKeyUnknown),
    ("Permission denied (", Cause::NotLetIn),
    ("Too many authentication failures", Cause::NotLetIn),
    ("Could not resolve hostname", Cause::NameUnknown),
    ("kex_exchange_identification", Cause::TooManyAtOnce),
    ("Connection refused", Cause::Refused),
    ("Connection timed out", Cause::TimedOut),
    ("Operation timed out", Cause::TimedOut),
    ("No route to host", Cause::NoWay),
    ("Network is unreachable", Cause::NoWay),
    ("not responding", Cause::Silent),
    ("Bad configuration option", Cause::OldSsh),
    ("command-line", Cause::OldSsh),
    ("unrecognized subcommand", Cause::OldPenstock),
    ("unknown option bridge", Cause::OldPenstock),
];

impl End {
    /// Reads what `ssh`, the bridge and the shell wrote to standard error.
    pub(super) fn read(errors: &str) -> Self {
        let (text, status) = match errors.rsplit_once(EXIT_LINE) {
            Some((text, status)) => (text, status.trim().parse().ok()),
            None => (errors, None),
        };
        let found = CAUSES.iter().find(|(words, _)| text.contains(words));
        let last = text.lines().rev().map(quoted).find(|line| !line.is_empty());
        Self { status, last, cause: found.map(|(_, cause)| *cause).unwrap_or_default() }
    }

    /// Returns whether a person at a terminal could have answered what `ssh` wanted to know.
    pub(super) fn needs_person(&self) -> bool {
        matches!(self.cause, Cause::NotLetIn | Cause::HostKeyUnknown)
    }

    /// Returns whether the next login fails as well until a person has changed something.
    pub(super) fn is_lasting(&self) -> bool {
        self.needs_person() || matches!(self.cause, Cause::HostKeyChanged | Cause::OldSsh)
    }

    /// Returns whether the server hung up before the login, as it does if too many have begun.
    pub(super) fn is_crowd(&self) -> bool {
        self.cause == Cause::TooManyAtOnce
    }

    /// Returns why no bridge has answered, and what to do. `noise` is what came to standard output.
    pub(super) fn before_bridge(&self, login: &Login, noise: &[u8]) -> String {
        let by_hand = login.by_hand();
        match (self.status, self.cause) {
            (Some(NOT_FOUND), _) => format!(
                "it has no `penstock` in the PATH of a login without a terminal; install Penstock \
                 there so that `{by_hand} penstock --version` works, or name the program with \
                 PENSTOCK_SSH_BRIDGE='/PATH/TO/penstock bridge'"
            ),
            (Some(NOT_EXECUTABLE), _) => {
                format!("it may not execute `penstock`{}", self.said())
            }
            (_, Cause::OldPenstock) => {
                "its `penstock` knows no bridge; install the same release on both hosts".to_owned()
            }
            (Some(SSH_FAILED) | None, cause) if cause != Cause::Other => {
                self.of_ssh(cause, &by_hand)
            }
            (Some(SSH_FAILED), _) => {
                format!("ssh failed{}; try `{by_hand} true`", self.said())
            }
            (Some(status), _) => {
                let said = if self.last.is_some() { self.said() } else { first_line(noise) };
                format!(
                    "the command there ended with status {status} before it was a bridge{said}; \
                     try `{by_hand} penstock bridge --check`"
                )
            }
            (None, _) => format!(
                "the bridge there did not answer in time{}; try `{by_hand} penstock bridge \
                 --check`",
                self.said()
            ),
        }
    }

    fn of_ssh(&self, cause: Cause, by_hand: &str) -> String {
        match cause {
            Cause::HostKeyChanged => format!(
                "its host key is not the one that SSH knows: either the host was installed anew, \
                 or somebody is between you and the host; ask its administrator, and then follow \
                 what `{by_hand}` says"
            ),
            Cause::HostKeyUnknown => format!(
                "SSH does not know its host key yet; run `{by_hand}` once in a terminal and \
                 compare the key"
            ),
            Cause::NotLetIn => format!(
                "SSH was not let in without a question{}; load your key into an agent (ssh-add), \
                 or start the program with `penstock run` in a terminal, which may ask for a \
                 password; `{by_hand} true` shows what SSH asks",
                self.said()
            ),
            Cause::NameUnknown => {
                "no host has this name, and ~/.ssh/config has no entry for it; check the name"
                    .to_owned()
            }
            Cause::Refused => format!(
                "no SSH server answers at its port{}; is sshd running there?",
                self.said()
            ),
            Cause::TimedOut | Cause::NoWay => format!(
                "the host does not answer{}; is it switched on, and does `{by_hand} true` work?",
                self.said()
            ),
            Cause::TooManyAtOnce => format!(
                "its SSH server hung up before the login{}; too many logins at once (MaxStartups \
                 in sshd_config)?",
                self.said()
            ),
            Cause::OldSsh => format!(
                "ssh does not understand its options{}; Penstock needs OpenSSH 7.6 or later",
                self.said()
            ),
            Cause::Silent | Cause::OldPenstock | Cause::Other => {
                format!("the SSH connection broke{}", self.said())
            }
        }
    }

    /// Returns why the connection has ended, or `None` if the bridge ended in order.
    pub(super) fn after_bridge(&self) -> Option<String> {
        match (self.status, self.cause) {
            (Some(0) | None, _) => None,
            (Some(SSH_FAILED), Cause::Silent | Cause::TimedOut) => Some(format!(
                "the node has not answered for {} s{}",
                super::command::SILENCE_S,
                self.said()
            )),
            (Some(SSH_FAILED), _) => Some(format!("ssh lost the connection{}", self.said())),
            (Some(status), _) => {
                Some(format!("ssh or the bridge ended with status {status}{}", self.said()))
            }
        }
    }

    /// Returns the last message in parentheses.
    fn said(&self) -> String {
        self.last.as_ref().map(|last| format!(" ({last})")).unwrap_or_default()
    }
}

impl NoGreeting {
    /// Returns what was wrong with the greeting, and what to do.
    pub(super) fn explain(self, login: &Login, noise: &[u8]) -> String {
        let by_hand = login.by_hand();
        match self {
            Self::TooMuchNoise => format!(
                "its login scripts write more than {} KiB to standard output{}; let them write \
                 only if a terminal is there (try `{by_hand} true`)",
                NOISE_BYTES_MAX >> 10,
                first_line(noise)
            ),
            Self::OtherVersion => {
                "its bridge is of another release; install the same one on both hosts".to_owned()
            }
            Self::Garbled => format!(
                "the bridge there begins with a line that is not a bridge's; try `{by_hand} \
                 penstock bridge --check`"
            ),
        }
    }
}

/// Returns the first line of what login scripts wrote, in parentheses.
fn first_line(noise: &[u8]) -> String {
    let noise = String::from_utf8_lossy(noise);
    let first = noise.lines().map(quoted).find(|line| !line.is_empty());
    first.map(|line| format!(" (it wrote: {line})")).unwrap_or_default()
}

/// Returns a line of a node without what could change the reader's terminal.
fn quoted(line: &str) -> String {
    let plain: String = line.chars().filter(|letter| !letter.is_control()).collect();
    let plain = plain.trim().trim_end_matches('.');
    match plain.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("{}...", plain.get(..end).unwrap_or_default()),
        None => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str, status: i32) -> End {
        End::read(&format!("{text}\n{EXIT_LINE}{status}\n"))
    }

    fn before(text: &str, status: i32) -> String {
        let login = Login::read("alice@gpu01").unwrap();
        end(text, status).before_bridge(&login, b"")
    }

    #[test]
    fn each_failure_has_a_reason_and_a_remedy() {
        for (text, status, reason, remedy) in [
            ("bash: line 1: penstock: command not found", 127, "no `penstock`", "install Penstock"),
            ("sh: 1: penstock: Kommando nicht gefunden", 127, "no `penstock`", "SSH_BRIDGE"),
            ("sh: penstock: Permission denied", 126, "may not execute", "Permission denied"),
            ("error: unrecognized subcommand 'bridge'", 2, "knows no bridge", "same release"),
            (
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n\
                 Host key verification failed.",
                255,
                "host key is not the one",
                "administrator",
            ),
            ("Host key verification failed.", 255, "does not know its host key", "compare the key"),
            ("a@h: Permission denied (publickey,password).", 255, "not let in", "ssh-add"),
            ("ssh: Could not resolve hostname x: Name not known", 255, "no host", "check"),
            ("ssh: connect to host h port 22: Connection refused", 255, "no SSH server", "sshd"),
            ("ssh: connect to host h port 22: Connection timed out", 255, "not answer", "switched"),
            ("ssh: connect to host h port 22: No route to host", 255, "not answer", "switched"),
            (
                "kex_exchange_identification: Connection closed by remote host",
                255,
                "before the login",
                "MaxStartups",
            ),
            ("command-line: line 0: Bad configuration option: x", 255, "options", "7.6"),
            ("weird", 255, "ssh failed (weird)", "ssh alice@gpu01 true"),
            ("penstock: it burns", 1, "status 1", "(penstock: it burns)"),
        ] {
            let why = before(text, status);
            assert!(why.contains(reason) && why.contains(remedy), "{text}: {why}");
        }
        let login = Login::read("h").unwrap();
        let why = end("", 1).before_bridge(&login, b"\x1b[1mNo account.\r\nx");
        assert!(why.contains("(it wrote: [1mNo account)"), "{why}");
        let why = End::read("").before_bridge(&login, b"");
        assert!(why.contains("did not answer in time"), "{why}");
    }

    #[test]
    fn only_questions_need_a_person() {
        assert!(end("a@h: Permission denied (publickey).", 255).needs_person());
        assert!(end("Host key verification failed.", 255).needs_person());
        let changed = "REMOTE HOST IDENTIFICATION HAS CHANGED!\nHost key verification failed.";
        assert!(!end(changed, 255).needs_person() && end(changed, 255).is_lasting());
        assert!(!end("ssh: connect to host h port 22: Connection refused", 255).is_lasting());
        assert!(!end("sh: penstock: Permission denied", 126).needs_person());
    }

    #[test]
    fn the_end_of_a_session_has_a_reason_unless_it_was_in_order() {
        assert_eq!(end("", 0).after_bridge(), None);
        assert_eq!(End::read("Warning: x").after_bridge(), None);
        let why = |text, status| end(text, status).after_bridge().unwrap();
        assert!(why("Timeout, server h not responding.", 255).starts_with("the node has not"));
        let broken = why("client_loop: send disconnect: Broken pipe", 255);
        assert_eq!(broken, "ssh lost the connection (client_loop: send disconnect: Broken pipe)");
        assert_eq!(why("", 137), "ssh or the bridge ended with status 137");
    }

    #[test]
    fn what_a_node_says_cannot_change_the_terminal() {
        let long = format!("\x1b]0;title\x07{}", "ä".repeat(1000));
        let last = end(&long, 255).last.unwrap();
        assert!(!last.contains(char::is_control) && last.chars().count() == QUOTED_CHARS_MAX + 3);
    }
}

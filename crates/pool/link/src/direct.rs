//! The direct connection of a session that came through SSH.
//!
//! Through SSH the client has got an address, the public key of the daemon, and a one-time key
//! ([`crate::invitation`]). It connects there and says hello, and keeps its login: on many systems
//! the end of a user's last login ends the daemon or removes its socket. If there is no direct
//! connection, or it fails before the daemon has given the client a place, the session goes through
//! SSH. A session that has begun never changes its way.

use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use penstock_process::log;
use penstock_tls::HandshakeError;
use penstock_wire::hello::Verdict;
use penstock_wire::invitation::Detour;

use crate::encryption::{Encryption, Pins, Trust};
use crate::error::LinkError;
use crate::hello::{Opened, Progress, Watch, Wish, say_hello_on};
use crate::invitation::{ANSWER, Invitation, RELAY, SIGN_OF_LIFE};
use crate::race::Race;
use crate::secure;
use crate::stream::Stream;
use crate::talk::Limit;
use crate::transport::contract::Way;
use crate::transport::syscall::wait_pair;
use crate::transport::tcp::Attempt;

/// Longest wait for a bridge that has not answered before the session goes through it.
const BRIDGE_ANSWER_MAX: Duration = Duration::from_secs(10);

/// A connection for a session, and with what this side may connect directly instead.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) stream: Stream,
    pub(crate) invitation: Option<Invitation>,
}

/// Returns the way of a link that is direct because a bridge has brought a one-time key.
pub(crate) fn way(of_link: Way) -> Way {
    Way { transport: "TCP beside SSH", ..of_link }
}

/// Opens a session directly, or tells the bridge to connect and returns why there is no direct
/// connection. `login` is the connection to the bridge.
///
/// # Errors
/// Fails if the login has ended, the daemon refuses the session on any way, or `watch` gave up.
pub(crate) fn open(
    login: &Stream,
    invitation: &Invitation,
    name: &str,
    wish: Wish,
    limit: Limit,
    watch: Watch<'_>,
) -> Result<Result<Opened, Detour>, LinkError> {
    let mut race = Race::begin(Instant::now());
    say(login, SIGN_OF_LIFE)?;
    let opened = match connect(login, invitation, &mut race)? {
        Ok(stream) => say_hello(stream, invitation, &race, name, wish, limit, watch),
        Err(detour) => Err(Failure::Detour(detour)),
    };
    match opened {
        Ok(opened) => {
            log!(Debug, "the session at {name} goes directly to {}", invitation.address);
            Ok(Ok(opened))
        }
        Err(Failure::Link(error)) => Err(error),
        Err(Failure::Detour(detour)) => {
            log!(Debug, "the session at {name} goes through SSH: {detour:?}");
            if !race.has_answer() {
                hear_answer(login)?;
            }
            say(login, RELAY)?;
            Ok(Err(detour))
        }
    }
}

/// Why a session is not direct.
enum Failure {
    /// It can go through SSH.
    Detour(Detour),
    /// It fails on any way.
    Link(LinkError),
}

/// Connects, as long as that can still be faster than SSH.
fn connect(
    login: &Stream,
    invitation: &Invitation,
    race: &mut Race,
) -> Result<Result<Stream, Detour>, LinkError> {
    let attempt = match Attempt::begin(invitation.address) {
        Ok(attempt) => attempt,
        Err(error) => return Ok(Err(reason(&error))),
    };
    loop {
        let answers = (!race.has_answer()).then(|| login.as_fd());
        let (is_made, has_spoken) = wait_pair(attempt.as_fd(), answers, race.gives_up_at())?;
        if is_made {
            let made = attempt.finish().map(Stream::new);
            return Ok(made.map_err(|error| reason(&error)));
        }
        if has_spoken {
            hear_answer(login)?;
            race.answered(Instant::now());
        } else if Instant::now() >= race.gives_up_at() {
            return Ok(Err(Detour::NoAnswer));
        }
    }
}

/// Takes the bridge's answer to [`SIGN_OF_LIFE`].
fn hear_answer(login: &Stream) -> Result<(), LinkError> {
    let mut said = [0];
    login.read_exact_until(&mut said, Instant::now() + BRIDGE_ANSWER_MAX)?;
    if said == [ANSWER] { Ok(()) } else { Err(LinkError::NotPenstock { peer: login.peer() }) }
}

/// Says one byte to the bridge. There is always room for it.
fn say(login: &Stream, byte: u8) -> Result<(), LinkError> {
    match login.send_now(&[IoSlice::new(&[byte])])? {
        Some(1) => Ok(()),
        _ => Err(LinkError::Closed),
    }
}

fn reason(error: &io::Error) -> Detour {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Detour::Refused,
        io::ErrorKind::TimedOut
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable => Detour::NoAnswer,
        _ => Detour::Failed,
    }
}

/// Encrypts the connection and says hello with the one-time key.
fn say_hello(
    stream: Stream,
    invitation: &Invitation,
    race: &Race,
    name: &str,
    wish: Wish,
    limit: Limit,
    watch: Watch<'_>,
) -> Result<Opened, Failure> {
    let now = Instant::now();
    let max = race.hello_max(now, limit.deadline().saturating_duration_since(now));
    let encryption = Encryption::for_now(Pins::Key(invitation.node)).map_err(Failure::Link)?;
    let key = invitation.key();
    let trust = Trust { pool: Some(&key), encryption: Some(&encryption), guests: None };
    let made = secure::connect(stream, name, trust, now + max);
    let (stream, channel) = made.map_err(|error| Failure::Detour(not_encrypted(&error)))?;
    let mut has_met = false;
    let mut watch = |progress| {
        has_met = true;
        watch(progress)
    };
    let wish = Wish { ticket: Some(invitation.ticket()), ..wish };
    let watch: &mut dyn FnMut(Progress) -> ControlFlow<()> = &mut watch;
    let opened = say_hello_on(stream, channel, name, wish, trust, limit, watch);
    opened.map_err(|error| {
        if may_detour(&error, has_met) {
            log!(Debug, "no direct session at {name}: {error}");
            Failure::Detour(Detour::Failed)
        } else {
            Failure::Link(error)
        }
    })
}

/// Returns why a handshake has failed. Any listener that does not prove the key of the daemon is
/// another one.
fn not_encrypted(error: &LinkError) -> Detour {
    match error {
        LinkError::PlainNode { .. } => Detour::OtherKey,
        LinkError::Handshake { source, .. }
            if matches!(**source, HandshakeError::OtherKey { .. }) =>
        {
            Detour::OtherKey
        }
        LinkError::HelloTimeout { .. } => Detour::NoAnswer,
        _ => Detour::Failed,
    }
}

/// Returns whether a session whose direct hello has failed may go through SSH. A daemon that has
/// no place for it on one way has none on the other. Once the daemon has answered, a lost
/// connection may have taken a place already.
fn may_detour(error: &LinkError, has_met: bool) -> bool {
    match error {
        LinkError::Refused { verdict, .. } => matches!(
            verdict,
            Verdict::NotInvited | Verdict::NotUnderstood | Verdict::NoKey | Verdict::WrongUser
        ),
        LinkError::GivenUp { .. } | LinkError::OverLimit { .. } => false,
        _ => !has_met,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(verdict: Verdict) -> LinkError {
        LinkError::Refused { peer: String::new(), verdict }
    }

    #[test]
    fn only_what_concerns_the_direct_way_leads_through_ssh() {
        for has_met in [false, true] {
            assert!(may_detour(&refused(Verdict::NotInvited), has_met));
            for verdict in [Verdict::Full, Verdict::NoWorker, Verdict::Unconfined] {
                assert!(!may_detour(&refused(verdict), has_met), "{verdict:?}");
            }
            assert!(!may_detour(&LinkError::GivenUp { peer: String::new() }, has_met));
            let why = LinkError::OverLimit { peer: String::new(), why: String::new() };
            assert!(!may_detour(&why, has_met));
            assert_eq!(may_detour(&LinkError::Closed, has_met), !has_met);
        }
    }

    #[test]
    fn each_failure_to_connect_has_a_reason() {
        use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
        assert_eq!(reason(&ConnectionRefused.into()), Detour::Refused);
        for kind in [TimedOut, HostUnreachable, NetworkUnreachable] {
            assert_eq!(reason(&kind.into()), Detour::NoAnswer);
        }
        assert_eq!(reason(&io::ErrorKind::PermissionDenied.into()), Detour::Failed);
        let plain = LinkError::PlainNode { peer: String::new() };
        assert_eq!(not_encrypted(&plain), Detour::OtherKey);
        let late = LinkError::HelloTimeout { peer: String::new() };
        assert_eq!(not_encrypted(&late), Detour::NoAnswer);
        assert_eq!(not_encrypted(&LinkError::Closed), Detour::Failed);
    }
}

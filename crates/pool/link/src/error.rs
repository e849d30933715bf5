//! Errors of links.

use std::io;
use std::path::PathBuf;

use penstock_tls::{HandshakeError, IdentityError, ListError, PinError, PublicKey, RecordError};
use penstock_wire::FrameError;
use penstock_wire::hello::Verdict;

/// Returns what to do about a connection that failed.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "its daemon must name this user (penstock serve --allow-user)"
        }
        io::ErrorKind::NotFound => "no daemon has made this socket (penstock serve)",
        io::ErrorKind::ConnectionRefused => "no daemon listens there (penstock serve)",
        io::ErrorKind::TimedOut
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable => {
            "is the host running, and do the network and its firewalls let this port through?"
        }
        // The search for a name fails without a number of the system.
        _ if source.raw_os_error().is_none() => "is the address right?",
        _ => "is penstockd running there?",
    }
}

/// Error of a link, of its hello or of its resources.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The system lets this user send no more descriptors.
    #[error(
        "no descriptor can be sent: other processes of this user have sent so many that nobody \
         receives that the limit is reached (ETOOMANYREFS); end the sessions that have begun \
         last, or raise the limit of open files of this process (LimitNOFILE)"
    )]
    TooManySent,
    /// This process may not send descriptors, because it serves a stranger.
    #[error("this process may not send descriptors")]
    MayNotSend,
    /// A peer that should send beats has sent nothing for a long time.
    #[error(
        "it has sent nothing for {seconds} s, not even a sign of life: the process or its host is \
         stopped, or the network between is cut (PENSTOCK_SILENCE_S)"
    )]
    Silent { seconds: u64 },
    /// The peer ended the session and gave a reason.
    #[error("the peer ended the session: {0}")]
    Fault(String),
    /// The text is not an address.
    #[error("`{text}` is not an address: {why}; write {forms}")]
    Address {
        text: String,
        /// What is wrong with the text.
        why: String,
        /// The forms of addresses.
        forms: String,
    },
    /// The key file cannot be used.
    #[error("the key file {}: {why}", path.display())]
    Key {
        path: PathBuf,
        /// What is wrong with the file, and what to do.
        why: String,
    },
    /// The memory that a guest shares with this host cannot be used.
    #[error("the guest's memory {}: {why}", path.display())]
    GuestMemory {
        path: PathBuf,
        /// What is wrong with the file, and what to do.
        why: String,
    },
    /// Nobody answers at the address.
    #[error("cannot connect to {address}: {source}; {}", remedy(source))]
    Connect { address: String, source: io::Error },
    /// The daemon of this node has made no connection for its worker.
    #[error("this node's daemon made no connection to `{address}`: {why}")]
    Unreached {
        address: String,
        /// Why not, and what to do.
        why: String,
    },
    /// A login did not lead to a daemon.
    #[error("cannot reach {address}: {why}")]
    Login {
        address: String,
        /// What happened, and what to do.
        why: String,
        /// Whether a person must do something before another login can succeed.
        is_lasting: bool,
    },
    /// This process cannot listen on the address.
    #[error("cannot listen on {address}: {source}")]
    Listen { address: String, source: io::Error },
    /// Another process listens on the address.
    #[error("another process serves {address} already")]
    InUse { address: String },
    /// A user whom this one does not trust listens on the address.
    #[error(
        "{address} is a socket of user {user}, in a directory where others could have put it; if \
         that user runs your daemon, set PENSTOCK_TRUSTED_USERS={user}"
    )]
    Listener {
        address: String,
        /// Number of the user.
        user: u32,
    },
    /// Strangers can use the transport of the link, and this side has no key.
    #[error(
        "{peer} is on another machine or reached over a network, which needs the pool's key; copy \
         the key file of that node here (penstock key)"
    )]
    NoKey { peer: String },
    /// The peer proved a different key or none.
    #[error(
        "{peer} has another key than this side; both sides need the same key file (penstock key)"
    )]
    WrongKey { peer: String },
    /// This side does not know the node, and the node has not proved the pool's key.
    #[error(
        "{peer} is not known here and does not prove the pool's key, so another machine could \
         answer in its place. Its key is {key} (fingerprint {}). Give both sides the same key file \
         (penstock key), or compare the fingerprint with the one that `penstock key list` shows on \
         the node, and run `penstock key allow {peer} {key}`", key.fingerprint()
    )]
    UnknownNode { peer: String, key: PublicKey },
    /// A node has another key than the pinned one, or the file of known nodes cannot be used.
    #[error(transparent)]
    Pin(Box<PinError>),
    /// A file of names and keys cannot be used.
    #[error(transparent)]
    List(#[from] ListError),
    /// This side has no identity.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// There is no folder for the identity and the known keys.
    #[error(
        "this process has no folder for the keys of encrypted links; set HOME or XDG_CONFIG_HOME"
    )]
    NoFolder,
    /// This side encrypts the link, and the node does not. There is no second attempt.
    #[error(
        "{peer} does not speak TLS, and this side sends nothing in plain text over a network. Its \
         daemon has PENSTOCK_ENCRYPTION=never or is of a release that did not encrypt unless told \
         to, or the address is wrong. Set PENSTOCK_ENCRYPTION=remote there, or \
         PENSTOCK_ENCRYPTION=never on both sides if nobody else can see this network"
    )]
    PlainNode { peer: String },
    /// The handshake of an encrypted link failed.
    #[error("{peer}: {source}")]
    Handshake { peer: String, source: Box<HandshakeError> },
    /// The records of an encrypted link are not as they must be, or were cut off.
    #[error("the encrypted link: {0}")]
    Record(#[from] RecordError),
    /// The peer refused this side.
    #[error("{peer} refused: {verdict}")]
    Refused {
        peer: String,
        /// Reason that the peer gave.
        verdict: Verdict,
    },
    /// The peer refused this side because of a limit, or because an administrator drains it.
    #[error("{peer} refused: {why}")]
    OverLimit {
        peer: String,
        /// The limit and who set it.
        why: String,
    },
    /// This side refused the peer.
    #[error("{peer} was refused: {verdict}")]
    Turned {
        peer: String,
        /// Reason that the peer was told.
        verdict: Verdict,
    },
    /// The two sides speak different versions of the protocol.
    #[error(
        "{peer} speaks version {theirs} of the protocol, this side version {ours}; install the same release on both"
    )]
    WrongVersion {
        peer: String,
        /// Version of this side.
        ours: u16,
        /// Version of the peer.
        theirs: u16,
    },
    /// The bytes of the peer are not those of this protocol.
    #[error("{peer} does not speak this protocol; is the address right?")]
    NotPenstock { peer: String },
    /// The peer did not finish the hello in time.
    #[error("{peer} did not finish the hello in time")]
    HelloTimeout { peer: String },
    /// The daemon stopped reporting to this client while the client waited in line.
    #[error(
        "{peer} kept this client waiting in line and was then silent for {silence_ms} ms; it is stopped or overloaded"
    )]
    SilentLine {
        peer: String,
        /// Length of the silence in milliseconds.
        silence_ms: u64,
    },
    /// This side gave up the link before it was established.
    #[error("this side gave up the link to {peer}")]
    GivenUp { peer: String },
    /// The peer hung up, or this side closed the link.
    #[error("the link is closed")]
    Closed,
    /// The peer's host gives no sign of life any more.
    #[error("the peer has vanished: it acknowledges nothing any more")]
    Vanished,
    /// A child process used a link of its parent.
    #[error("the link belongs to the process that forked this one; open a new one after fork()")]
    Forked,
    /// The peer violated the protocol.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer's shared memory is not as agreed, or has invalid content.
    #[error("the shared memory of the link: {0}")]
    Ring(&'static str),
    /// The length of the payload's pieces differs from the announced length.
    #[error("a payload of {announced} bytes was announced, but its pieces have {given}")]
    Pieces {
        /// Announced length in bytes.
        announced: u64,
        /// Bytes given so far.
        given: u64,
    },
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// Operation that was attempted.
        doing: &'static str,
        source: io::Error,
    },
}

impl LinkError {
    /// Returns whether nobody listens at the address. A daemon that was killed leaves its Unix
    /// socket behind.
    pub fn is_nobody_there(&self) -> bool {
        let Self::Connect { source, .. } = self else { return false };
        matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
    }

    /// Returns whether another attempt fails as well until a person has changed something: a key, a
    /// setting, or a release.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Login { is_lasting, .. } => *is_lasting,
            Self::Refused { verdict, .. } => matches!(
                verdict,
                Verdict::WrongVersion | Verdict::WrongKey | Verdict::WrongUser | Verdict::NoKey
            ),
            Self::Key { .. }
            | Self::NoKey { .. }
            | Self::WrongKey { .. }
            | Self::UnknownNode { .. }
            | Self::Pin(_)
            | Self::List(_)
            | Self::Identity(_)
            | Self::NoFolder
            | Self::PlainNode { .. }
            | Self::WrongVersion { .. }
            | Self::NotPenstock { .. } => true,
            _ => false,
        }
    }

    /// Returns a function for `map_err` that adds what was attempted.
    pub(crate) fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System { doing, source: error.into() }
    }
}

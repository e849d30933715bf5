//! The opening of a link, both sides: identity, permission, version and features. See
//! [`penstock_wire::hello`].

use std::io::IoSlice;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use penstock_tls::PublicKey;
use penstock_wire::hello::{
    Answer, Final, Hello, MAGIC, REASON_BYTES_MAX, Role, TICKET_BYTES, Verdict, Welcome, feature,
    side, transcript,
};
use penstock_wire::invitation::Detour;
use penstock_wire::limits::PROTOCOL_VERSION;
use penstock_wire::{U16, U32, U64};
use zerocopy::IntoBytes;

use crate::address::Address;
use crate::direct::{self, Reached};
use crate::encryption::{Taken, Trust};
use crate::error::LinkError;
use crate::instance::{End, Ends, Instance, InstanceId};
use crate::listener_owner;
use crate::secure::{self, Channel, Enrolled, KnownClient, TLS_FIRST_BYTE};
use crate::security::{Security, instance_of};
use crate::stream::Stream;
use crate::talk::{Limit, PREFIX_BYTES, Talk, blank_welcome, nonce};
use crate::transport::contract::{Credentials, Source, Way};
use crate::transport::region::host::Part;

/// Link that this side opened.
#[derive(Debug)]
pub struct Opened {
    /// Socket, to pass to [`crate::establish`].
    pub stream: Stream,
    /// Bits of [`feature`] that both sides have.
    pub features: u64,
    /// Instance of the daemon, if the daemon was asked to prove it and the connection leads
    /// straight to the daemon.
    pub instance: Option<InstanceId>,
    /// Public key that the node has proved, if the link is encrypted.
    pub node: Option<PublicKey>,
}

/// Progress of a link that is being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The daemon has proved what it was asked to prove. Has its instance if the connection is
    /// direct.
    Met(Option<InstanceId>),
    /// The daemon has no free worker yet.
    InLine {
        /// Number of clients that are served before this one.
        ahead: u32,
    },
}

/// Callback that is told of the progress and decides whether to continue.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// Link that another process opens, before the final message of this side.
#[derive(Debug)]
pub struct Accepted {
    /// Purpose of the link.
    pub role: Role,
    /// For [`Role::Peer`]: the ticket.
    pub ticket: [u8; TICKET_BYTES],
    /// Bits of [`feature`] that both sides have.
    pub features: u64,
    /// Process that opens the link, if the kernel knows it.
    pub credentials: Option<Credentials>,
    /// The peer, if the link is encrypted.
    pub client: Option<Box<KnownClient>>,
    /// Whether the client uses several nodes.
    pub has_others: bool,
    stream: Stream,
    peer: Box<str>,
    deadline: Instant,
}

/// Connects to a daemon or worker and says hello.
///
/// # Errors
/// Fails if nobody answers, the peer refuses, or the peer does not have the key.
pub fn open<'a>(
    address: &Address,
    role: Role,
    ticket: Option<[u8; TICKET_BYTES]>,
    trust: impl Into<Trust<'a>>,
    deadline: Instant,
) -> Result<Opened, LinkError> {
    let trust = trust.into();
    let patience = deadline.saturating_duration_since(penstock_process::now());
    let stream = connect(address, trust, deadline)?;
    // A login has taken a time of its own.
    let deadline = if address.logs_in() { penstock_process::now() + patience } else { deadline };
    open_on(stream, &address.to_string(), role, ticket, trust, deadline)
}

/// Like [`open`], for a client or a survey that the daemon may keep waiting in line. The daemon has
/// `patience` for each answer. In line it has at least `LINE_SILENCE_MS_MAX` between two
/// messages, and the line itself may last as long as the daemon lives. `watch` is told of each step
/// and can give up. With `prove` the daemon is asked to prove its instance.
///
/// # Errors
/// See [`open`]. Also fails if `watch` gave up or the daemon fell silent.
pub fn open_patiently<'a>(
    address: &Address,
    role: Role,
    trust: impl Into<Trust<'a>>,
    patience: Duration,
    prove: bool,
    watch: Watch<'_>,
) -> Result<Opened, LinkError> {
    let trust = trust.into();
    let wish = Wish { role, ticket: None, prove, detour: Detour::NotTried };
    let deadline = penstock_process::now() + patience;
    let (name, limit) = (address.to_string(), Limit::Each(patience));
    let reached = match role {
        Role::Client => connect_for_session(address, trust, deadline)?,
        _ => Reached { stream: connect(address, trust, deadline)?, invitation: None },
    };
    let Some(invitation) = reached.invitation else {
        return say_hello(reached.stream, &name, wish, trust, limit, watch);
    };
    match direct::open(&reached.stream, &invitation, &name, wish, limit, watch)? {
        Ok(opened) => Ok(Opened { stream: opened.stream.beside_login(reached.stream), ..opened }),
        Err(detour) => {
            let wish = Wish { detour, ..wish };
            say_hello(reached.stream, &name, wish, trust, limit, watch)
        }
    }
}

/// Like [`open`], over a socket that is already connected. An encrypted link knows the peer under
/// the name `peer`.
///
/// # Errors
/// See [`open`].
pub fn open_on<'a>(
    stream: Stream,
    peer: &str,
    role: Role,
    ticket: Option<[u8; TICKET_BYTES]>,
    trust: impl Into<Trust<'a>>,
    deadline: Instant,
) -> Result<Opened, LinkError> {
    let go_on = &mut |_| ControlFlow::Continue(());
    let wish = Wish { role, ticket, prove: role == Role::Control, detour: Detour::NotTried };
    say_hello(stream, peer, wish, trust.into(), Limit::At(deadline), go_on)
}

/// Connects to a listener that this side may talk to.
fn connect(address: &Address, trust: Trust<'_>, deadline: Instant) -> Result<Stream, LinkError> {
    // With encryption, a node that is pinned needs no key of the pool.
    if address.needs_key() && trust.pool.is_none() && trust.encryption.is_none() {
        return Err(LinkError::NoKey { peer: address.to_string() });
    }
    let stream = Stream::connect(address, deadline)?;
    listener_owner::check(&stream, address)?;
    Ok(stream)
}

/// Connects for a session. On a node over SSH, also returns with what this side connects directly.
fn connect_for_session(
    address: &Address,
    trust: Trust<'_>,
    deadline: Instant,
) -> Result<Reached, LinkError> {
    if !address.logs_in() {
        return Ok(Reached { stream: connect(address, trust, deadline)?, invitation: None });
    }
    let (stream, invitation) = Stream::connect_for_session(address, deadline)?;
    listener_owner::check(&stream, address)?;
    Ok(Reached { stream, invitation })
}

/// Purpose of a hello.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) role: Role,
    pub(crate) ticket: Option<[u8; TICKET_BYTES]>,
    /// Whether the peer shall prove its instance.
    pub(crate) prove: bool,
    /// Why there is no direct connection.
    pub(crate) detour: Detour,
}

fn say_hello(
    stream: Stream,
    peer: &str,
    wish: Wish,
    trust: Trust<'_>,
    limit: Limit,
    watch: Watch<'_>,
) -> Result<Opened, LinkError> {
    let (stream, channel) = secure::connect(stream, peer, trust, limit.deadline())?;
    say_hello_on(stream, channel, peer, wish, trust, limit, watch)
}

/// Says hello on a connection that is encrypted if it must be.
pub(crate) fn say_hello_on(
    stream: Stream,
    channel: Option<Channel<'_>>,
    peer: &str,
    Wish { role, ticket, prove, detour }: Wish,
    trust: Trust<'_>,
    limit: Limit,
    watch: Watch<'_>,
) -> Result<Opened, LinkError> {
    let security = Security::of(&stream, trust.pool, channel.as_ref());
    let security = security.map_err(|_| LinkError::NoKey { peer: peer.to_owned() })?;
    let talk = Talk { stream: &stream, peer, limit };
    let features = stream.features();
    let wishes = detour.bits() | if prove { feature::PROVE_INSTANCE } else { 0 };
    let hello = Hello {
        magic: MAGIC,
        version: U16::new(PROTOCOL_VERSION),
        role: U16::new(role as u16),
        features: U64::new(features | wishes),
        nonce: nonce()?,
    };
    talk.say(&hello)?;
    let ticket = ticket.unwrap_or([0; TICKET_BYTES]);
    // With the end of the handshake, which saves a round trip: a node that is known by its key may
    // see the ticket at once. If the node shall prove its instance, this side may give it up then.
    let early = security.prove_early(&hello, &ticket).filter(|_| !prove);
    if let Some(proof) = early {
        talk.say(&Answer { proof, ticket })?;
    }

    let prefix = talk.hear::<[u8; PREFIX_BYTES]>()?;
    talk.check_prefix(&prefix)?;
    let welcome: Welcome = talk.hear_rest(&prefix)?;
    talk.check_verdict(welcome.verdict)?;
    security.check_node(peer, &hello, &welcome)?;
    let instance = if prove { instance_of(&stream, &hello, &welcome) } else { None };
    let given_up = || LinkError::GivenUp { peer: peer.to_owned() };
    if watch(Progress::Met(instance)).is_break() {
        return Err(given_up());
    }

    if early.is_none() {
        let proof = security.prove_client(&hello, &welcome, &ticket);
        talk.say(&Answer { proof, ticket })?;
    }
    let mut last: Final = talk.hear()?;
    while Verdict::from_wire(last.verdict.get()) == Some(Verdict::InLine) {
        // A daemon with an endless line must not hold up links of workers and status requests.
        if !matches!(role, Role::Client | Role::Survey) {
            return Err(LinkError::NotPenstock { peer: peer.to_owned() });
        }
        if watch(Progress::InLine { ahead: last.ahead.get() }).is_break() {
            return Err(given_up());
        }
        last = talk.hear_in_line()?;
    }
    if Verdict::from_wire(last.verdict.get()) == Some(Verdict::OverLimit) {
        return Err(talk.hear_reason());
    }
    talk.check_verdict(last.verdict)?;
    let node = channel.map(|channel| channel.peer);
    Ok(Opened { features: welcome.features.get() & features, stream, instance, node })
}

/// Receives the hello of a process that has just connected, and refuses the process if the hello is
/// wrong. Otherwise the process waits until the caller calls [`Accepted::finish`].
///
/// # Errors
/// Fails if the process was refused or did not speak in time.
pub fn accept_hello<'a>(
    stream: Stream,
    trust: impl Into<Trust<'a>>,
    allow: &dyn Fn(&Credentials) -> bool,
    deadline: Instant,
) -> Result<Accepted, LinkError> {
    accept_hello_as(None, stream, trust, allow, deadline)
}

/// Like [`accept_hello`], for a daemon that proves its instance.
///
/// # Errors
/// See [`accept_hello`].
pub fn accept_hello_as<'a>(
    instance: Option<&Instance>,
    stream: Stream,
    trust: impl Into<Trust<'a>>,
    allow: &dyn Fn(&Credentials) -> bool,
    deadline: Instant,
) -> Result<Accepted, LinkError> {
    let trust = trust.into();
    let (peer, limit) = (stream.peer(), Limit::At(deadline));
    let Begun { stream, channel, prefix } = hear_first(stream, &peer, trust, limit)?;
    let talk = Talk { stream: &stream, peer: &peer, limit };
    match talk.check_prefix(&prefix) {
        Err(error @ LinkError::WrongVersion { .. }) => {
            let _ = talk.refuse(Verdict::WrongVersion);
            return Err(error);
        }
        Err(error) => {
            let _ = talk.refuse(Verdict::NotUnderstood);
            return Err(error);
        }
        Ok(()) if channel.is_none() && takes(&stream, trust) == Taken::Encrypted => {
            return Err(talk.refuse(Verdict::NeedsEncryption));
        }
        Ok(()) => {}
    }
    let hello: Hello = talk.hear_rest(&prefix)?;
    let Some(role) = Role::from_wire(hello.role.get()) else {
        return Err(talk.refuse(Verdict::NotUnderstood));
    };
    let credentials = stream.credentials();
    // A transport must name the user or demand the key. One that does neither lets nobody in.
    if !credentials.map_or(stream.needs_key(), |peer| allow(&peer)) {
        return Err(talk.refuse(Verdict::WrongUser));
    }
    let Ok(security) = Security::of_accepted(&stream, trust, channel.as_ref()) else {
        return Err(talk.refuse(Verdict::NoKey));
    };

    let own_features = stream.features() | bridged(&hello, credentials);
    let mut welcome = blank_welcome(Verdict::Welcome, own_features);
    welcome.nonce = nonce()?;
    let instance = instance.filter(|_| hello.features.get() & feature::PROVE_INSTANCE != 0);
    if let (Some(instance), Some((accepting, connecting))) = (instance, stream.ends()) {
        welcome.instance = instance.id();
        let transcript = transcript(side::INSTANCE, &hello, &welcome);
        welcome.signature = instance.sign(&transcript, &Ends { accepting, connecting });
    }
    welcome.proof = security.prove_node(&hello, &welcome);
    talk.say(&welcome)?;

    let answer: Answer = talk.hear()?;
    let client = match security.check_client(&hello, &welcome, &answer)? {
        Ok(client) => client,
        Err(verdict) => return Err(talk.refuse_last(verdict)),
    };
    let (ticket, wishes) = (answer.ticket, hello.features.get());
    Ok(Accepted {
        role,
        ticket,
        features: wishes & own_features,
        credentials,
        client,
        has_others: wishes & feature::PROVE_INSTANCE != 0,
        peer: peer.into(),
        deadline,
        stream,
    })
}

/// Returns what this side takes on a connection that it has accepted.
fn takes(stream: &Stream, trust: Trust<'_>) -> Taken {
    trust.encryption.map_or(Taken::Plain, |it| it.rule().takes(stream.exposure()))
}

/// Connection of which the first bytes of a hello have come.
struct Begun<'a> {
    stream: Stream,
    channel: Option<Channel<'a>>,
    prefix: [u8; PREFIX_BYTES],
}

/// Receives the first bytes of a hello. If they are those of TLS, the handshake comes before the
/// hello.
fn hear_first<'a>(
    stream: Stream,
    peer: &str,
    trust: Trust<'a>,
    limit: Limit,
) -> Result<Begun<'a>, LinkError> {
    let talk = Talk { stream: &stream, peer, limit };
    let prefix = talk.hear::<[u8; PREFIX_BYTES]>()?;
    let [first, ..] = prefix;
    if first != TLS_FIRST_BYTE {
        return Ok(Begun { stream, channel: None, prefix });
    }
    let Some(encryption) = trust.encryption.filter(|_| takes(&stream, trust) != Taken::Plain)
    else {
        return Err(talk.refuse(Verdict::PlainOnly));
    };
    let (stream, channel) = secure::accept(stream, &prefix, encryption, limit.deadline())?;
    let prefix = Talk { stream: &stream, peer, limit }.hear::<[u8; PREFIX_BYTES]>()?;
    Ok(Begun { stream, channel: Some(channel), prefix })
}

/// Returns the features of a link that a bridge on this host has brought from another one.
fn bridged(hello: &Hello, credentials: Option<Credentials>) -> u64 {
    let is_bridged = credentials.is_some() && hello.features.get() & feature::THROUGH_SSH != 0;
    if is_bridged { feature::THROUGH_SSH | feature::DETOUR } else { 0 }
}

impl Accepted {
    /// Name of the peer for messages.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Takes a part of the guest's region for the link. Returns `None` if there is no region, the
    /// client does not know regions, or all parts are taken.
    pub fn take_part(&self) -> Option<Part> {
        if self.features & feature::GUEST_MEMORY == 0 {
            return None;
        }
        self.stream.region()?.take()
    }

    /// Returns how the bytes of the link travel.
    pub fn way(&self) -> Way {
        let way = self.stream.way(self.features);
        if self.guest().is_some() { direct::way(way) } else { way }
    }

    /// Returns whether the peer's process still runs, and shares this process's PID namespace. It
    /// does not if it is in a container, on another host, or in a guest.
    pub fn is_in_own_namespace(&self) -> bool {
        self.credentials.is_some()
            && crate::transport::socket_file::peer_is_in_own_namespace(self.stream.as_fd())
    }

    /// Returns the number of the user, if the kernel or a one-time key names it.
    pub fn user(&self) -> Option<u32> {
        self.credentials.map(|peer| peer.uid).or_else(|| self.guest())
    }

    /// Returns the address of this host at which a client with a one-time key has come.
    pub fn guests_address(&self) -> Option<IpAddr> {
        self.guest()?;
        match self.stream.ends()? {
            (End::Address(here), _) => Some(here.ip().to_canonical()),
            _ => None,
        }
    }

    /// Returns the user whose bridge has brought the client's one-time key.
    fn guest(&self) -> Option<u32> {
        match self.client.as_ref()?.enrolled {
            Enrolled::Invited { user } => Some(user),
            _ => None,
        }
    }

    /// Returns where the connection comes from.
    pub fn source(&self) -> Source {
        self.stream.source()
    }

    /// Refuses the peer because of a limit, and tells it the reason.
    pub fn refuse_for(self, why: &str) -> LinkError {
        let mut text = why.as_bytes();
        text = text.get(..text.len().min(REASON_BYTES_MAX)).unwrap_or_default();
        let size = u16::try_from(text.len()).unwrap_or_default().to_le_bytes();
        let last = Final { verdict: U16::new(Verdict::OverLimit as u16), ahead: U32::new(0) };
        // One attempt without waiting, as for other refusals.
        let _ = self.stream.send_now(&[
            IoSlice::new(last.as_bytes()),
            IoSlice::new(&size),
            IoSlice::new(text),
        ]);
        self.stream.end_politely();
        LinkError::Turned { peer: self.peer.into(), verdict: Verdict::OverLimit }
    }

    /// Sends the final message. With [`Verdict::Welcome`] the link is established.
    ///
    /// # Errors
    /// [`LinkError::Turned`] for any other verdict; also fails if the peer hung up.
    pub fn finish(self, verdict: Verdict) -> Result<Stream, LinkError> {
        let limit = Limit::At(self.deadline);
        let talk = Talk { stream: &self.stream, peer: &self.peer, limit };
        if verdict != Verdict::Welcome {
            return Err(talk.refuse_last(verdict));
        }
        talk.say(&Final { verdict: U16::new(verdict as u16), ahead: U32::new(0) })?;
        Ok(self.stream)
    }

    /// Returns whether the peer is gone, as far as is known without waiting.
    pub fn has_hung_up(&self) -> bool {
        self.stream.has_hung_up()
    }

    /// Tells a waiting client that `ahead` clients come before it. Does not block.
    ///
    /// # Errors
    /// Fails if the peer hung up, or if the socket is full because the peer does not read.
    pub fn tell_in_line(&self, ahead: u32) -> Result<(), LinkError> {
        // TCP would take one more message for a peer that has ended.
        if self.has_hung_up() {
            return Err(LinkError::Closed);
        }
        let note = Final { verdict: U16::new(Verdict::InLine as u16), ahead: U32::new(ahead) };
        let sent = self.stream.send_now(&[IoSlice::new(note.as_bytes())])?;
        if sent == Some(size_of::<Final>()) { Ok(()) } else { Err(LinkError::Closed) }
    }
}

impl AsFd for Accepted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

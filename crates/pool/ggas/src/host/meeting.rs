//! Connects the members of a heap without a daemon. Each member is a process. It listens, tells the
//! members with higher numbers where, and connects to those with lower numbers. On one host they
//! meet at a Unix socket, over which memory can be passed. Between hosts they use TCP, and both
//! sides prove that they have the plan's secret. There is no deadlock, because member 0 connects to
//! nobody, and each member only waits for those below it before it accepts others.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use penstock_link::{Address, Key, LinkError, Listener, Stream, open};
use penstock_wire::hello::{KEY_BYTES, Role, TICKET_BYTES};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::door::Door;

/// Longest time of a meeting. The members begin at about the same time: a rank that is building a
/// program does so in another thread. But on a full machine a process may wait for some seconds.
pub const MEETING_MAX: Duration = Duration::from_secs(20);

/// Length of a heap's secret in bytes: that of the keys and tickets made from it.
pub const SECRET_BYTES: usize = 32;

/// Largest number of connections that are heard at the same time, each by a thread. That is all
/// members of a full heap, which come at once, and some strangers that say nothing.
const HEARD_MAX: usize = 80;

const _: () = assert!(TICKET_BYTES == SECRET_BYTES && KEY_BYTES == SECRET_BYTES);

/// Why members do not meet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeetingError {
    /// There is no socket, or no random number for its name.
    #[error("cannot listen for the heap's other members: {0}")]
    Listen(LinkError),
    /// The system refuses to wait.
    #[error("cannot wait for the heap's other members: {0}")]
    Wait(Errno),
    /// Another member could not be created.
    #[error("member {member} of the heap, on {host}, cannot be created: {reason}")]
    Refused { member: u32, host: String, reason: String },
    /// A member is not reachable at any of its addresses.
    #[error("member {member} of the heap, on {host}, cannot be reached: {reason}")]
    Unreached {
        member: u32,
        host: String,
        /// The reason for each address.
        reason: String,
    },
    /// A member did not come in time.
    #[error(
        "member {member} of the heap, on {host}, did not come within {} s",
        MEETING_MAX.as_secs()
    )]
    Late { member: u32, host: String },
}

/// A message of one member to another, by the way that their processes have besides the heap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MeetingMessage {
    /// Where members with higher numbers connect to the sender.
    Door {
        member: u32,
        /// Addresses in the format of [`Address`].
        addresses: Vec<String>,
    },
    /// The sender could not be created, so nobody has to wait for it.
    Refused { member: u32, reason: String },
}

/// What a member knows about a meeting before it begins.
#[derive(Clone)]
pub struct MeetingPlan {
    /// Number of the heap, the same for all members.
    pub heap: u64,
    /// Number of this member.
    pub me: u32,
    /// Host name of each member.
    pub hosts: Vec<String>,
    /// With this secret members prove to each other that they belong together.
    pub secret: [u8; SECRET_BYTES],
    /// Name or address at which other hosts reach this one.
    pub public_name: String,
    /// Folder for the socket at which members of this host connect.
    pub sockets: PathBuf,
}

impl fmt::Debug for MeetingPlan {
    /// Leaves out the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeetingPlan")
            .field("heap", &self.heap)
            .field("me", &self.me)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

/// The meeting from this member's side.
#[derive(Debug)]
pub struct Meeting {
    plan: MeetingPlan,
    key: Key,
    deadline: Instant,
    listeners: Vec<Listener>,
}

impl Meeting {
    /// Opens the sockets for members with higher numbers.
    ///
    /// # Errors
    /// [`MeetingError::Listen`].
    pub fn open(plan: MeetingPlan) -> Result<Self, MeetingError> {
        let mut listeners = Vec::new();
        let later = plan.hosts.get(plan.me as usize + 1..).unwrap_or_default();
        let own = plan.hosts.get(plan.me as usize);
        if later.iter().any(|host| Some(host) == own) {
            let path = socket_path(&plan.sockets).map_err(MeetingError::Listen)?;
            listeners.push(Listener::bind(&Address::unix(path)).map_err(MeetingError::Listen)?);
        }
        if later.iter().any(|host| Some(host) != own) {
            let everywhere = Address::tcp("0.0.0.0", 0);
            listeners.push(Listener::bind(&everywhere).map_err(MeetingError::Listen)?);
        }
        let (key, deadline) = (Key::from_bytes(&plan.secret), Instant::now() + MEETING_MAX);
        Ok(Self { plan, key, deadline, listeners })
    }

    /// Returns the message for each member with a higher number.
    pub fn door(&self) -> MeetingMessage {
        let public = |listener: &Listener| listener.address().advertised(&self.plan.public_name);
        let addresses = self.listeners.iter().filter_map(public);
        MeetingMessage::Door {
            member: self.plan.me,
            addresses: addresses.map(|address| address.to_string()).collect(),
        }
    }

    /// Meets all other members, and passes each connection to `join` as soon as it exists.
    /// `messages` receives the messages of other members. Blocks for at most [`MEETING_MAX`].
    ///
    /// # Errors
    /// The first member that does not come or does not let this one in, or an error of `join`.
    pub fn meet<E: From<MeetingError>>(
        self,
        messages: &Receiver<MeetingMessage>,
        mut join: impl FnMut(u32, Stream) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut met = vec![false; self.plan.hosts.len()];
        for _ in 0..self.plan.me {
            let (member, addresses) = self.next_door(messages, &met)?;
            join(member, self.connect(member, &addresses)?)?;
            if let Some(met) = met.get_mut(member as usize) {
                *met = true;
            }
        }
        let members = u32::try_from(self.plan.hosts.len()).unwrap_or(u32::MAX);
        let mut left: Vec<u32> = (self.plan.me + 1..members).collect();
        let door = Door {
            key: Key::from_bytes(&self.plan.secret),
            tickets: left.iter().map(|member| (*member, self.ticket(*member))).collect(),
            deadline: self.deadline,
        };
        let (door, (results, guests), mut heard) = (Arc::new(door), channel(), 0);
        while let Some(first) = left.first().copied() {
            if let Some(stream) = self.accept(first, messages, heard)? {
                heard += usize::from(door.hear(stream, &results));
            }
            while let Ok(guest) = guests.try_recv() {
                heard -= 1;
                if let Some(guest) = guest.filter(|guest| left.contains(&guest.member)) {
                    left.retain(|member| *member != guest.member);
                    join(guest.member, guest.stream)?;
                }
            }
        }
        Ok(())
    }

    /// Waits for the addresses of a member with a lower number that was not met yet.
    fn next_door(
        &self,
        messages: &Receiver<MeetingMessage>,
        met: &[bool],
    ) -> Result<(u32, Vec<String>), MeetingError> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match messages.recv_timeout(left) {
                Ok(MeetingMessage::Door { member, addresses })
                    if member < self.plan.me && met.get(member as usize) == Some(&false) =>
                {
                    return Ok((member, addresses));
                }
                Ok(MeetingMessage::Refused { member, reason }) => {
                    return Err(MeetingError::Refused { member, host: self.host(member), reason });
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let missing = met.iter().position(|met| !met).unwrap_or_default();
                    let member = u32::try_from(missing).unwrap_or(u32::MAX);
                    return Err(MeetingError::Late { member, host: self.host(member) });
                }
            }
        }
    }

    fn connect(&self, member: u32, addresses: &[String]) -> Result<Stream, MeetingError> {
        let mut reasons = Vec::new();
        let is_here = self.host(member) == self.host(self.plan.me);
        for address in addresses {
            let address = Address::of_stranger(address);
            if address.as_ref().is_ok_and(|address| address.is_local() && !is_here) {
                continue;
            }
            let opened = address.and_then(|address| {
                let ticket = Some(self.ticket(self.plan.me));
                open(&address, Role::Peer, ticket, Some(&self.key), self.deadline)
            });
            match opened {
                Ok(opened) => return Ok(opened.stream),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(MeetingError::Unreached { member, host: self.host(member), reason: reasons.join("; ") })
    }

    /// Accepts a connection if one comes soon. `heard` is the number of connections that threads
    /// are hearing.
    fn accept(
        &self,
        missing: u32,
        messages: &Receiver<MeetingMessage>,
        heard: usize,
    ) -> Result<Option<Stream>, MeetingError> {
        /// Time between two checks for messages of other members.
        const LOOK: Duration = Duration::from_millis(50);
        /// The same while threads are hearing connections.
        const LOOK_HEARD: Duration = Duration::from_millis(1);
        while let Ok(word) = messages.try_recv() {
            if let MeetingMessage::Refused { member, reason } = word {
                return Err(MeetingError::Refused { member, host: self.host(member), reason });
            }
        }
        let now = Instant::now();
        if now >= self.deadline {
            return Err(MeetingError::Late { member: missing, host: self.host(missing) });
        }
        let look = if heard > 0 { LOOK_HEARD } else { LOOK };
        if heard >= HEARD_MAX {
            std::thread::sleep(look);
            return Ok(None);
        }
        let fds: Vec<BorrowedFd<'_>> = self.listeners.iter().map(AsFd::as_fd).collect();
        let mut polled: Vec<PollFd<'_>> =
            fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let most = (self.deadline - now).min(look).try_into().ok();
        match poll(&mut polled, most.as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(MeetingError::Wait(error)),
        }
        let ready = polled.iter().position(|fd| fd.revents().contains(PollFlags::IN));
        let Some(listener) = ready.and_then(|place| self.listeners.get(place)) else {
            return Ok(None);
        };
        match listener.accept() {
            Ok(stream) => Ok(Some(stream)),
            // Without file descriptors nobody can come any more.
            Err(error) if is_out_of_files(&error) => Err(MeetingError::Listen(error)),
            // The peer has gone. The pause avoids a busy loop if the error lasts.
            Err(_) => {
                std::thread::sleep(LOOK_HEARD);
                Ok(None)
            }
        }
    }

    /// Returns the ticket that a member brings. It is no secret; over TCP both sides also prove the
    /// secret.
    fn ticket(&self, member: u32) -> [u8; TICKET_BYTES] {
        let mut ticket = [0; TICKET_BYTES];
        let words = [self.plan.heap.to_le_bytes(), u64::from(member).to_le_bytes()];
        for (to, from) in ticket.iter_mut().zip(words.as_flattened()) {
            *to = *from;
        }
        ticket
    }

    fn host(&self, member: u32) -> String {
        self.plan.hosts.get(member as usize).cloned().unwrap_or_default()
    }
}

fn is_out_of_files(error: &LinkError) -> bool {
    let LinkError::Listen { source, .. } = error else { return false };
    [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
}

/// Returns an unused path for a socket. The listener admits only this user, and removes the file.
fn socket_path(folder: &Path) -> Result<PathBuf, LinkError> {
    let random = secret()
        .map_err(|error| LinkError::System { doing: "naming a socket", source: error.into() })?;
    let name: String = random.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(folder.join(format!("wtr-heap-{name}.sock")))
}

/// Returns random bytes from the system.
///
/// # Errors
/// The system has none.
pub fn secret() -> Result<[u8; SECRET_BYTES], Errno> {
    let mut secret = [0; SECRET_BYTES];
    // The system never returns only a part of so few bytes.
    rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;
    use std::thread;

    use super::*;

    /// Name of the host of the tests. Members are on one host if they say the same name.
    fn hostname() -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    fn plan(hosts: &[&str], secret: u8) -> MeetingPlan {
        MeetingPlan {
            heap: 5,
            me: 0,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            secret: [secret; SECRET_BYTES],
            public_name: hostname(),
            sockets: std::env::temp_dir(),
        }
    }

    /// Meets as one member. Returns the members that joined, and whether over a Unix socket.
    fn member(
        plan: &MeetingPlan,
        me: u32,
        messages: &Receiver<MeetingMessage>,
        others: &[Sender<MeetingMessage>],
    ) -> Result<Vec<(u32, bool)>, MeetingError> {
        let meeting = Meeting::open(MeetingPlan { me, ..plan.clone() })?;
        for other in others.iter().skip(me as usize + 1) {
            _ = other.send(meeting.door());
        }
        let mut joined = Vec::new();
        meeting.meet(messages, |member, stream| {
            joined.push((member, stream.passes_descriptors()));
            Ok::<(), MeetingError>(())
        })?;
        joined.sort_unstable();
        Ok(joined)
    }

    fn all(plans: &[MeetingPlan]) -> Vec<Result<Vec<(u32, bool)>, MeetingError>> {
        let (says, hears): (Vec<_>, Vec<_>) = plans.iter().map(|_| channel()).unzip();
        thread::scope(|scope| {
            let says = &says;
            let members: Vec<_> = (0..)
                .zip(plans)
                .zip(hears)
                .map(|((me, plan), messages)| {
                    scope.spawn(move || member(plan, me, &messages, says))
                })
                .collect();
            members.into_iter().map(|it| it.join().unwrap()).collect()
        })
    }

    #[test]
    fn members_of_one_host_meet_at_unix_sockets_and_those_of_others_over_tcp() {
        let here = hostname();
        // The third name stands for another host. It is this host under another name.
        let plan = plan(&[&here, &here, "localhost"], 1);
        let met: Vec<_> =
            all(&[plan.clone(), plan.clone(), plan]).into_iter().map(Result::unwrap).collect();
        assert_eq!(met[0], [(1, true), (2, false)]);
        assert_eq!(met[1], [(0, true), (2, false)]);
        assert_eq!(met[2], [(0, false), (1, false)]);
    }

    #[test]
    fn whoever_has_not_the_secret_is_not_let_in() {
        let here = hostname();
        let plans = [plan(&[&here, "localhost"], 1), plan(&[&here, "localhost"], 2)];
        let (says, hears) = channel();
        thread::scope(|scope| {
            let meeting = Meeting::open(plans[0].clone()).unwrap();
            says.send(meeting.door()).unwrap();
            let (stop, stopped) = channel();
            let first =
                scope.spawn(move || meeting.meet(&stopped, |_, _| Ok::<(), MeetingError>(())));
            let second = member(&plans[1], 1, &hears, &[]);
            assert!(matches!(second, Err(MeetingError::Unreached { member: 0, .. })), "{second:?}");
            stop.send(MeetingMessage::Refused { member: 1, reason: "it is a stranger".into() })
                .unwrap();
            assert!(matches!(first.join().unwrap(), Err(MeetingError::Refused { member: 1, .. })));
        });
    }

    #[test]
    fn strangers_who_say_nothing_hold_up_no_member() {
        let here = hostname();
        let plan = plan(&[&here, "localhost"], 1);
        let (says, hears) = channel();
        thread::scope(|scope| {
            let meeting = Meeting::open(plan.clone()).unwrap();
            let MeetingMessage::Door { addresses, .. } = meeting.door() else { panic!("a door") };
            let port: u16 = addresses[0].rsplit(':').next().unwrap().parse().unwrap();
            // If they were heard one after the other, this would take longer than members wait.
            let silent: Vec<_> = (0..12)
                .map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap())
                .collect();
            says.send(meeting.door()).unwrap();
            let (_open, nothing) = channel();
            let first =
                scope.spawn(move || meeting.meet(&nothing, |_, _| Ok::<(), MeetingError>(())));
            assert_eq!(member(&plan, 1, &hears, &[]).unwrap(), [(0, false)]);
            first.join().unwrap().unwrap();
            drop(silent);
        });
    }

    #[test]
    fn a_member_that_can_not_be_made_holds_up_nobody() {
        let here = hostname();
        let plan = plan(&[&here, &here], 1);
        for (me, other) in [(0, 1), (1, 0)] {
            let (says, hears) = channel();
            says.send(MeetingMessage::Refused {
                member: other,
                reason: "its device has memory of its own".into(),
            })
            .unwrap();
            let error = member(&plan, me, &hears, &[]).unwrap_err().to_string();
            assert!(error.contains("memory of its own") && error.contains(&here), "{error}");
        }
    }

    #[test]
    fn nothing_stays_where_members_met() {
        let here = hostname();
        let plan = plan(&[&here, &here], 1);
        let meeting = Meeting::open(plan.clone()).unwrap();
        let MeetingMessage::Door { addresses, .. } = meeting.door() else { panic!("no door") };
        let path = addresses[0].strip_prefix("unix:").unwrap().to_owned();
        assert!(Path::new(&path).exists());
        drop(meeting);
        assert!(!Path::new(&path).exists());
    }
}

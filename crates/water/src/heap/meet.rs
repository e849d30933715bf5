//! Connects the members of a heap. Each member is a process. It listens, tells the members with
//! higher numbers where, and connects to those with lower numbers. On one host they meet at a Unix
//! socket, over which memory can be passed. Between hosts they use TCP, and both sides prove that
//! they have the plan's secret. There is no deadlock, because member 0 connects to nobody, and each
//! member only waits for those below it before it accepts others.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use penstock_link::{Address, Key, LinkError, Listener, Stream, accept_hello, open};
use penstock_process::variable;
use penstock_wire::hello::{Role, TICKET_BYTES, Verdict};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::{HeapMessage, HeapPlan, SECRET_BYTES};
use crate::host::hostname;

/// Longest time for the creation of a heap. The members begin at about the same time: a rank that
/// is building a program does so in another thread. But on a full machine a process may wait for
/// some seconds.
pub const MEET_MAX: Duration = Duration::from_secs(20);

/// Longest time for the hello of a connection. A member says its hello at once; this bounds
/// strangers.
const HELLO_MAX: Duration = Duration::from_secs(2);
/// Largest number of connections that are heard at the same time, each by a thread. That is all
/// members of a full heap, which come at once, and some strangers that say nothing.
const HEARD_MAX: usize = 80;

const _: () =
    assert!(TICKET_BYTES == SECRET_BYTES && penstock_wire::hello::KEY_BYTES == SECRET_BYTES);

/// Why members do not meet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Missed {
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
    #[error("member {member} of the heap, on {host}, did not come within {} s", MEET_MAX.as_secs())]
    Late { member: u32, host: String },
}

/// The meeting from this member's side.
#[derive(Debug)]
pub struct Meeting<'a> {
    plan: &'a HeapPlan,
    me: u32,
    key: Key,
    deadline: Instant,
    listeners: Vec<Listener>,
}

impl<'a> Meeting<'a> {
    /// Opens the sockets for members with higher numbers.
    ///
    /// # Errors
    /// [`Missed::Listen`].
    pub fn open(plan: &'a HeapPlan, me: u32) -> Result<Self, Missed> {
        let mut listeners = Vec::new();
        let later = plan.hosts.get(me as usize + 1..).unwrap_or_default();
        let own = plan.hosts.get(me as usize);
        if later.iter().any(|host| Some(host) == own) {
            let path = socket_path().map_err(Missed::Listen)?;
            listeners.push(Listener::bind(&Address::unix(path)).map_err(Missed::Listen)?);
        }
        if later.iter().any(|host| Some(host) != own) {
            let everywhere = Address::tcp("0.0.0.0", 0);
            listeners.push(Listener::bind(&everywhere).map_err(Missed::Listen)?);
        }
        let (key, deadline) = (Key::from_bytes(&plan.secret), Instant::now() + MEET_MAX);
        Ok(Self { plan, me, key, deadline, listeners })
    }

    /// Returns the message for each member with a higher number.
    pub fn door(&self) -> HeapMessage {
        let host = public_name();
        let public = |listener: &Listener| listener.address().advertised(&host).to_string();
        HeapMessage::Door {
            member: self.me,
            addresses: self.listeners.iter().map(public).collect(),
        }
    }

    /// Meets all other members, and passes each connection to `join` as soon as it exists. `words`
    /// receives the messages of other members. Blocks for at most [`MEET_MAX`].
    ///
    /// # Errors
    /// The first member that does not come or does not let this one in, or an error of `join`.
    pub fn meet<E: From<Missed>>(
        self,
        messages: &Receiver<HeapMessage>,
        mut join: impl FnMut(u32, Stream) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut met = vec![false; self.plan.hosts.len()];
        for _ in 0..self.me {
            let (member, addresses) = self.next_door(messages, &met)?;
            join(member, self.connect(member, &addresses)?)?;
            if let Some(met) = met.get_mut(member as usize) {
                *met = true;
            }
        }
        let members = u32::try_from(self.plan.hosts.len()).unwrap_or(u32::MAX);
        let mut left: Vec<u32> = (self.me + 1..members).collect();
        let door = Door {
            key: Key::from_bytes(&self.plan.secret),
            tickets: left.iter().map(|member| (*member, self.ticket(*member))).collect(),
            deadline: self.deadline,
        };
        let (door, (say, hear), mut heard) = (Arc::new(door), channel(), 0);
        while let Some(first) = left.first().copied() {
            if let Some(stream) = self.accept(first, messages, heard)? {
                heard += usize::from(door.hear(stream, &say));
            }
            while let Ok(came) = hear.try_recv() {
                heard -= 1;
                if let Some((member, stream)) = came.filter(|(member, _)| left.contains(member)) {
                    left.retain(|it| *it != member);
                    join(member, stream)?;
                }
            }
        }
        Ok(())
    }

    /// Waits for the addresses of a member with a lower number that was not met yet.
    fn next_door(
        &self,
        messages: &Receiver<HeapMessage>,
        met: &[bool],
    ) -> Result<(u32, Vec<String>), Missed> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match messages.recv_timeout(left) {
                Ok(HeapMessage::Door { member, addresses })
                    if member < self.me && met.get(member as usize) == Some(&false) =>
                {
                    return Ok((member, addresses));
                }
                Ok(HeapMessage::Refused { member, reason }) => {
                    return Err(Missed::Refused { member, host: self.host(member), reason });
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let missing = met.iter().position(|met| !met).unwrap_or_default();
                    let member = u32::try_from(missing).unwrap_or(u32::MAX);
                    return Err(Missed::Late { member, host: self.host(member) });
                }
            }
        }
    }

    fn connect(&self, member: u32, addresses: &[String]) -> Result<Stream, Missed> {
        let mut reasons = Vec::new();
        let is_here = self.host(member) == self.host(self.me);
        for address in addresses {
            let address: Result<Address, LinkError> = address.parse();
            if address.as_ref().is_ok_and(|address| address.is_local() && !is_here) {
                continue;
            }
            let opened = address.and_then(|address| {
                let ticket = Some(self.ticket(self.me));
                open(&address, Role::Peer, ticket, Some(&self.key), self.deadline)
            });
            match opened {
                Ok(opened) => return Ok(opened.stream),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(Missed::Unreached { member, host: self.host(member), reason: reasons.join("; ") })
    }

    /// Accepts a connection if one comes soon. `heard` is the number of connections that threads
    /// are hearing.
    fn accept(
        &self,
        missing: u32,
        messages: &Receiver<HeapMessage>,
        heard: usize,
    ) -> Result<Option<Stream>, Missed> {
        /// Time between two checks for messages of other members.
        const LOOK: Duration = Duration::from_millis(50);
        /// The same while threads are hearing connections.
        const LOOK_HEARD: Duration = Duration::from_millis(1);
        while let Ok(word) = messages.try_recv() {
            if let HeapMessage::Refused { member, reason } = word {
                return Err(Missed::Refused { member, host: self.host(member), reason });
            }
        }
        let now = Instant::now();
        if now >= self.deadline {
            return Err(Missed::Late { member: missing, host: self.host(missing) });
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
            Err(error) => return Err(Missed::Wait(error)),
        }
        let ready = polled.iter().position(|fd| fd.revents().contains(PollFlags::IN));
        let Some(listener) = ready.and_then(|place| self.listeners.get(place)) else {
            return Ok(None);
        };
        match listener.accept() {
            Ok(stream) => Ok(Some(stream)),
            // Without file descriptors nobody can come any more.
            Err(error) if is_out_of_files(&error) => Err(Missed::Listen(error)),
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
        let words = [self.plan.heap.0.to_le_bytes(), u64::from(member).to_le_bytes()];
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

/// Lets members in. Threads that hear connections share it.
struct Door {
    key: Key,
    tickets: Vec<(u32, [u8; TICKET_BYTES])>,
    deadline: Instant,
}

impl Door {
    /// Hears a connection in a thread, which sends the result within [`HELLO_MAX`], so that no
    /// stranger delays a member. Returns `false` if the thread cannot be started.
    fn hear(self: &Arc<Self>, stream: Stream, say: &Sender<Option<(u32, Stream)>>) -> bool {
        let (door, say) = (Arc::clone(self), say.clone());
        let hear = move || {
            // Sending fails only when all members have come and nobody listens.
            _ = say.send(door.let_in(stream));
        };
        std::thread::Builder::new().name("wtr-heap-hello".into()).spawn(hear).is_ok()
    }

    /// Lets the peer in if it is a missing member. Strangers, which may connect to any port, are
    /// refused silently.
    fn let_in(&self, stream: Stream) -> Option<(u32, Stream)> {
        let own = rustix::process::getuid().as_raw();
        let deadline = (Instant::now() + HELLO_MAX).min(self.deadline);
        let accepted =
            accept_hello(stream, Some(&self.key), &|who| who.uid == own, deadline).ok()?;
        let member =
            self.tickets.iter().find(|(_, ticket)| *ticket == accepted.ticket).map(|it| it.0);
        let verdict = match (member, accepted.role) {
            (Some(_), Role::Peer) => Verdict::Welcome,
            _ => Verdict::WrongTicket,
        };
        let stream = accepted.finish(verdict).ok()?;
        member.map(|member| (member, stream))
    }
}

/// Returns the name or address at which other hosts reach this one: `WTR_HOST`, otherwise the host
/// name.
fn public_name() -> String {
    variable::WTR_HOST.text().unwrap_or_else(hostname)
}

/// Returns an unused path for a socket. The listener admits only this user, and removes the file.
fn socket_path() -> Result<PathBuf, LinkError> {
    let folder = variable::RUNTIME_DIRECTORY.path().unwrap_or_else(std::env::temp_dir);
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
    use std::thread;

    use super::*;
    use crate::command::ObjectId;
    use crate::heap::Pe;

    fn plan(hosts: &[&str], secret: u8) -> HeapPlan {
        HeapPlan {
            heap: ObjectId(5),
            bytes: 64,
            pes: (0..).zip(hosts).map(|(rank, _)| Pe { rank, device: 0 }).collect(),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            timeout_ms: 0,
            force_proxy: false,
            secret: [secret; SECRET_BYTES],
        }
    }

    /// Meets as one member. Returns the members that joined, and whether over a Unix socket.
    fn member(
        plan: &HeapPlan,
        me: u32,
        messages: &Receiver<HeapMessage>,
        others: &[Sender<HeapMessage>],
    ) -> Result<Vec<(u32, bool)>, Missed> {
        let meeting = Meeting::open(plan, me)?;
        for other in others.iter().skip(me as usize + 1) {
            _ = other.send(meeting.door());
        }
        let mut joined = Vec::new();
        meeting.meet(messages, |member, stream| {
            joined.push((member, stream.passes_descriptors()));
            Ok::<(), Missed>(())
        })?;
        joined.sort_unstable();
        Ok(joined)
    }

    fn all(plans: &[HeapPlan]) -> Vec<Result<Vec<(u32, bool)>, Missed>> {
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
            let meeting = Meeting::open(&plans[0], 0).unwrap();
            says.send(meeting.door()).unwrap();
            let (stop, stopped) = channel();
            let first = scope.spawn(move || meeting.meet(&stopped, |_, _| Ok::<(), Missed>(())));
            let second = member(&plans[1], 1, &hears, &[]);
            assert!(matches!(second, Err(Missed::Unreached { member: 0, .. })), "{second:?}");
            stop.send(HeapMessage::Refused { member: 1, reason: "it is a stranger".into() })
                .unwrap();
            assert!(matches!(first.join().unwrap(), Err(Missed::Refused { member: 1, .. })));
        });
    }

    #[test]
    fn strangers_who_say_nothing_hold_up_no_member() {
        let here = hostname();
        let plan = plan(&[&here, "localhost"], 1);
        let (says, hears) = channel();
        thread::scope(|scope| {
            let meeting = Meeting::open(&plan, 0).unwrap();
            let HeapMessage::Door { addresses, .. } = meeting.door() else { panic!("a door") };
            let port: u16 = addresses[0].rsplit(':').next().unwrap().parse().unwrap();
            // If they were heard one after the other, this would take longer than members wait.
            let silent: Vec<_> = (0..12)
                .map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap())
                .collect();
            says.send(meeting.door()).unwrap();
            let (_open, nothing) = channel();
            let first = scope.spawn(move || meeting.meet(&nothing, |_, _| Ok::<(), Missed>(())));
            let began = Instant::now();
            assert_eq!(member(&plan, 1, &hears, &[]).unwrap(), [(0, false)]);
            first.join().unwrap().unwrap();
            assert!(began.elapsed() < MEET_MAX / 4, "{:?}", began.elapsed());
            drop(silent);
        });
    }

    #[test]
    fn a_member_that_can_not_be_made_holds_up_nobody() {
        let here = hostname();
        let plan = plan(&[&here, &here], 1);
        for (me, other) in [(0, 1), (1, 0)] {
            let (says, hears) = channel();
            says.send(HeapMessage::Refused {
                member: other,
                reason: "its device has memory of its own".into(),
            })
            .unwrap();
            let began = Instant::now();
            let error = member(&plan, me, &hears, &[]).unwrap_err().to_string();
            assert!(error.contains("memory of its own") && error.contains(&here), "{error}");
            assert!(began.elapsed() < MEET_MAX / 2);
        }
    }

    #[test]
    fn nothing_stays_where_members_met() {
        let here = hostname();
        let plan = plan(&[&here, &here], 1);
        let meeting = Meeting::open(&plan, 0).unwrap();
        let HeapMessage::Door { addresses, .. } = meeting.door() else { panic!("no door") };
        let path = addresses[0].strip_prefix("unix:").unwrap().to_owned();
        assert!(std::path::Path::new(&path).exists());
        drop(meeting);
        assert!(!std::path::Path::new(&path).exists());
    }
}

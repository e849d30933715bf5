//! Sockets that are files: how to connect to one and listen on one, and who is at the other end.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::contract::Credentials;
use super::syscall::BACKLOG;
use crate::fork::Owner;
use crate::standard::beyond_standard;

/// Pause between two attempts to reach a listener whose queue is full.
const CONNECT_RETRY: Duration = Duration::from_millis(2);

/// Connects to a socket's file.
pub(super) fn connect(path: &Path, deadline: Instant) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let fd = beyond_standard(fd)?;
    loop {
        match rustix::net::connect(&fd, &address) {
            Ok(()) => return Ok(fd),
            Err(Errno::INTR) => {}
            // The queue of the listener is full. There is nothing to poll for, so try again.
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(CONNECT_RETRY),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Listens on a new socket's file with this mode.
pub(super) fn listen(path: &Path, mode: u32) -> io::Result<(OwnedFd, SocketFile)> {
    let socket = bind(path, mode)?;
    let about = fs::symlink_metadata(path)?;
    let identity = (about.dev(), about.ino());
    let file = SocketFile { path: path.to_owned(), identity, owner: Owner::this_process() };
    Ok((socket, file))
}

/// Returns whether this is a connected socket of the family of socket files.
pub(super) fn is_one(socket: &OwnedFd) -> io::Result<bool> {
    Ok(sockopt::socket_domain(socket)? == AddressFamily::UNIX
        && sockopt::socket_type(socket)? == SocketType::STREAM)
}

/// Returns the peer's credentials. rustix cannot be used: its process ids are never 0, but the
/// kernel reports 0 for a peer outside of our PID namespace.
pub(super) fn peer_credentials(fd: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut size = libc::socklen_t::try_from(size_of_val(&peer)).unwrap_or_default();
    // SAFETY: both pointers refer to locals; the kernel writes at most `size` bytes.
    let code = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut size,
        )
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials { uid: peer.uid, gid: peer.gid, pid: peer.pid })
}

/// Returns whether the process that connected runs, and is in this process's PID namespace. A
/// process in a container, which has a namespace of its own, cannot signal processes outside.
/// `false` also means that nobody knows.
pub(crate) fn peer_is_in_own_namespace(fd: BorrowedFd<'_>) -> bool {
    let Ok(Credentials { pid, .. }) = peer_credentials(fd) else { return false };
    let peer = match peer_descriptor(fd) {
        // Linux before 6.5. If the peer has ended, this can be another process.
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => process_descriptor(pid),
        peer => peer,
    };
    peer.is_ok_and(|peer| is_in_own_namespace(&peer, pid))
}

fn process_descriptor(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Returns whether the process of a descriptor has this number, runs, and is in this process's PID
/// namespace. The text about the descriptor needs no right over the process, and is also there if
/// `/proc` hides processes of other users.
fn is_in_own_namespace(process: &OwnedFd, pid: i32) -> bool {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()));
    // `/proc` may be that of another namespace, whose numbers mean other processes.
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let has_own_proc = fs::read_to_string("/proc/self/status").is_ok_and(|it| has_only(&it, own));
    // The descriptor of a process that has ended is readable.
    let mut ended = [PollFd::new(process, PollFlags::IN)];
    let runs = poll(&mut ended, Some(&Timespec::default())) == Ok(0);
    has_own_proc && about.is_ok_and(|about| has_only(&about, pid)) && runs
}

/// Returns a descriptor of the process that connected. No later process gets the meaning of this
/// descriptor, as one can get the number of a process.
fn peer_descriptor(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut peer: libc::c_int = -1;
    let mut size = libc::socklen_t::try_from(size_of_val(&peer)).unwrap_or_default();
    // SAFETY: both pointers refer to locals; the kernel writes at most `size` bytes.
    let code = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut peer).cast(),
            &raw mut size,
        )
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made the descriptor, and it belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(peer) })
}

/// Returns whether a process has this number and no others. It has one in its own PID namespace and
/// one in each namespace around that, down from the namespace of `/proc`, which tells them.
fn has_only(about: &str, pid: i32) -> bool {
    let numbers = about.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let own = pid.to_string();
    pid > 0 && numbers.is_some_and(|it| it.split_ascii_whitespace().eq([own.as_str()]))
}

/// File of a listener. Dropping this value removes the file.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    owner: Owner,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A child process that inherited the listener must not remove the file, and this process
        // must not remove the file of a successor.
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|about| (about.dev(), about.ino()) == self.identity);
        if ours && self.owner.is_this_process() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn bind(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let fd = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // The file takes the socket's mode at bind, so others cannot connect at any moment.
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
    match rustix::net::bind(&fd, &address) {
        Err(Errno::ADDRINUSE) if is_stale(path) => {
            fs::remove_file(path)?;
            rustix::net::bind(&fd, &address)?;
        }
        bound => bound?,
    }
    // The umask may have removed bits of a wider mode.
    set_mode(path, mode)?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Sets the mode of a socket file. Refuses any other file: in a directory that others can write to,
/// somebody may have replaced the socket with a link to another file of this user.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let file =
        rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let about = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(about.st_mode) != FileType::Socket {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "somebody has replaced the socket's file",
        ));
    }
    if Mode::from_raw_mode(about.st_mode) == Mode::from_raw_mode(mode) {
        return Ok(());
    }
    // The mode of an `O_PATH` descriptor can be changed only through this name.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::set_permissions(name, fs::Permissions::from_mode(mode))
}

/// Returns whether `path` is a socket file that nobody serves.
fn is_stale(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket());
    is_socket
        && std::os::unix::net::UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn this_process_is_in_its_own_namespace() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(peer_is_in_own_namespace(one.as_fd()));
        let file = fs::File::open("/dev/null").unwrap();
        assert!(!peer_is_in_own_namespace(file.as_fd()), "nobody knows");
    }

    /// Linux before 6.5 has no descriptor of the peer, and another one is asked in the same way.
    #[test]
    fn a_process_that_has_ended_is_in_no_namespace() {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        assert!(is_in_own_namespace(&process_descriptor(own).unwrap(), own));
        assert!(!is_in_own_namespace(&process_descriptor(own).unwrap(), own + 1));
        assert!(process_descriptor(0).is_err());
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let process = process_descriptor(pid).unwrap();
        assert!(is_in_own_namespace(&process, pid));
        child.kill().unwrap();
        // It has ended, and nobody has reaped it.
        poll(&mut [PollFd::new(&process, PollFlags::IN)], None).unwrap();
        assert!(!is_in_own_namespace(&process, pid));
        child.wait().unwrap();
    }

    #[test]
    fn a_process_with_a_second_number_or_none_is_in_another_namespace() {
        assert!(has_only("Pid:\t7\nNSpid:\t7\n", 7));
        // In a container, of a reused number, reaped, unseen, and without the line.
        for about in ["NSpid:\t7\t2\n", "NSpid:\t8\n", "NSpid:\t-1\n", "NSpid:\t0\n", "Pid:\t7\n"] {
            for pid in [7, 0, -1] {
                assert!(!has_only(about, pid), "{about:?} {pid}");
            }
        }
    }
}

//! Runs `ssh` beside a program that knows nothing of it.
//!
//! The program may have many threads, wait for all its children, count them, handle SIGCHLD, or
//! have descriptors that must not stay open. So `ssh` is not its child: a shell starts `ssh` in the
//! background and ends at once, and init adopts the rest. What remains is one small shell that
//! waits for `ssh` and reports its exit status.
//!
//! * The shell is started by `posix_spawn`, which copies no memory and runs no code of the program.
//! * The new processes have three descriptors and nothing else of the program's.
//! * A shell starts background processes so that they ignore SIGINT and SIGQUIT, which a terminal
//!   sends to all processes in front. So the interrupt of a program that handles it does not take
//!   its nodes away.
//! * Standard error is memory of fixed size. Nobody must read it while `ssh` runs, a node that
//!   writes without end fills it once, and `ssh` never waits for a reader.

use std::ffi::{CString, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::ptr;

use penstock_process::{search, variable};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::error::LinkError;
use crate::standard::{FIRST_OTHER, beyond_standard};
use crate::sealed;

/// Shell that every system has.
const SHELL: &str = "/bin/sh";

/// Starts its arguments in the background, with the third descriptor as standard input, because a
/// shell takes the input away from background processes. Then writes `reason::EXIT_LINE`.
const SCRIPT: &str = r#"exec 3<&0
("$@" <&3 3<&-; printf '\n\036penstock-ssh-exit %d\n' "$?" >&2) &"#;

/// Size of the memory for messages. A warning of a site before the login has up to 4 KiB.
const MESSAGES_BYTES: usize = 64 << 10;

/// Variables that would change which libraries `ssh` loads: `penstock run` sets them for the
/// program, and other software often has libraries that `ssh` does not work with.
const NOT_FOR_SSH: [&str; 2] = ["LD_PRELOAD", "LD_LIBRARY_PATH"];

/// A running `ssh`. It ends soon after the socket hangs up.
#[derive(Debug)]
pub(super) struct Running {
    /// Leads to standard input and output of the program on the node.
    pub(super) socket: OwnedFd,
    pub(super) messages: Messages,
}

/// What `ssh` has written to standard error.
#[derive(Debug)]
pub(super) struct Messages(OwnedFd);

impl Messages {
    /// Returns the text so far.
    pub(super) fn text(&self) -> String {
        let mut bytes = vec![0; MESSAGES_BYTES];
        let mut filled = 0;
        // The memory ends with zeros, which nothing has overwritten yet.
        while let Some(room) = bytes.get_mut(filled..).filter(|room| !room.is_empty()) {
            match rustix::io::pread(&self.0, room, filled as u64) {
                Ok(read) if read > 0 => filled += read,
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(end);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Starts a command line.
///
/// # Errors
/// Fails if this host has no such program or cannot start processes.
pub(super) fn start(words: &[OsString]) -> io::Result<Running> {
    let program = words.first().ok_or(io::ErrorKind::InvalidInput)?;
    // The shell would report the same exit status as for a program that the node lacks.
    if search::program(program).is_none_or(|path| !path.exists()) {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "this host has no program `{}`; install OpenSSH's client (openssh-client), or \
                 name the program with PENSTOCK_SSH",
                program.display()
            ),
        ));
    }
    let (socket, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let (socket, theirs) = (beyond_standard(socket)?, beyond_standard(theirs)?);
    let messages = sealed::create("penstock-ssh", MESSAGES_BYTES).map_err(system)?;
    let mut all = [SHELL, "-c", SCRIPT, "sh"].map(OsString::from).to_vec();
    all.extend_from_slice(words);
    spawn_and_wait(&all, [&theirs, &theirs, &messages]).map_err(|error| {
        io::Error::new(error.kind(), format!("{SHELL}, which starts ssh, cannot start: {error}"))
    })?;
    Ok(Running { socket, messages: Messages(messages) })
}

fn system(error: LinkError) -> io::Error {
    match error {
        LinkError::System { source, .. } => source,
        other => io::Error::other(other),
    }
}

/// Starts a program by its path, with these descriptors as standard input, output and error, and
/// waits for its end.
fn spawn_and_wait(words: &[OsString], standard: [&OwnedFd; 3]) -> io::Result<()> {
    let words = c_strings(words.iter().cloned())?;
    let variables =
        variable::for_child().filter(|(name, _)| NOT_FOR_SSH.iter().all(|it| name != it));
    let variables = c_strings(variables.map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        name
    }))?;
    let path = words.first().ok_or(io::ErrorKind::InvalidInput)?;
    let (argv, envp) = (pointers(&words), pointers(&variables));
    let actions = FileActions::for_standard(standard)?;
    let attributes = Attributes::with_usual_signals()?;
    let mut pid = 0;
    // SAFETY: all pointers are to values that live until the call returns; both lists end with a
    // null pointer; actions and attributes are initialised.
    let code = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            path.as_ptr(),
            &raw const actions.0,
            &raw const attributes.0,
            argv.as_ptr(),
            envp.as_ptr(),
        )
    };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(code));
    }
    wait_for(pid);
    Ok(())
}

/// Waits for the end of a child. A handler of the program may have waited for it already.
fn wait_for(pid: libc::pid_t) {
    loop {
        // SAFETY: the child is the one that was just started; no status is asked for.
        let waited = unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        if waited != -1 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

fn c_strings(texts: impl Iterator<Item = OsString>) -> io::Result<Vec<CString>> {
    texts.map(|text| CString::new(text.into_vec()).map_err(io::Error::from)).collect()
}

/// Returns pointers to the strings, and a null pointer.
fn pointers(strings: &[CString]) -> Vec<*mut libc::c_char> {
    strings.iter().map(|it| it.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
}

/// What happens to the descriptors of a new process.
struct FileActions(libc::posix_spawn_file_actions_t);

impl FileActions {
    fn for_standard(standard: [&OwnedFd; 3]) -> io::Result<Self> {
        let mut actions = MaybeUninit::uninit();
        // SAFETY: the pointer is to a local of the right type.
        checked(unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) })?;
        // SAFETY: the call before has initialised it.
        let mut actions = Self(unsafe { actions.assume_init() });
        for (number, fd) in (0..).zip(standard) {
            let fd = fd.as_fd().as_raw_fd();
            // SAFETY: the actions are initialised; both numbers are not negative.
            checked(unsafe {
                libc::posix_spawn_file_actions_adddup2(&raw mut actions.0, fd, number)
            })?;
        }
        // SAFETY: the actions are initialised.
        checked(unsafe {
            libc::posix_spawn_file_actions_addclosefrom_np(&raw mut actions.0, FIRST_OTHER)
        })?;
        Ok(actions)
    }
}

impl Drop for FileActions {
    fn drop(&mut self) {
        // SAFETY: the actions are initialised and are not used afterwards.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}

/// How a new process starts.
struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    /// Blocks no signal, and takes back that a program ignores SIGPIPE and SIGCHLD: a shell that
    /// ignores SIGCHLD cannot wait.
    fn with_usual_signals() -> io::Result<Self> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the pointer is to a local of the right type.
        checked(unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) })?;
        // SAFETY: the call before has initialised it.
        let mut attributes = Self(unsafe { attributes.assume_init() });
        // SAFETY: a signal set is plain bits, for which zero is a value.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to initialised locals.
        checked(unsafe {
            libc::posix_spawnattr_setsigmask(&raw mut attributes.0, &raw const set)
        })?;
        for signal in [libc::SIGPIPE, libc::SIGCHLD] {
            // SAFETY: the pointer is to a local; the signal's number is valid.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        // SAFETY: both pointers are to initialised locals.
        checked(unsafe {
            libc::posix_spawnattr_setsigdefault(&raw mut attributes.0, &raw const set)
        })?;
        let flags = libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
        let flags = libc::c_short::try_from(flags).unwrap_or_default();
        // SAFETY: the attributes are initialised.
        checked(unsafe { libc::posix_spawnattr_setflags(&raw mut attributes.0, flags) })?;
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: the attributes are initialised and are not used afterwards.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}

/// Makes an error of the code that functions of `posix_spawn` return.
fn checked(code: libc::c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::fd::FromRawFd as _;
    use std::os::unix::net::UnixStream;

    use super::super::reason::EXIT_LINE;
    use super::*;

    /// Runs a script in place of `ssh`. Returns what it wrote to standard output and error.
    fn run(script: &str, input: &[u8]) -> (String, String) {
        let words = ["sh", "-c", script].map(OsString::from);
        let Running { socket, messages } = start(&words).unwrap();
        let mut stream = UnixStream::from(socket);
        stream.write_all(input).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        (said, messages.text())
    }

    #[test]
    fn bytes_and_messages_and_the_exit_status_come_through() {
        let (said, messages) = run("cat; echo problem >&2; exit 7", b"hello");
        assert_eq!(said, "hello");
        assert_eq!(messages, format!("problem\n\n{EXIT_LINE}7\n"));
        // The end of a process by a signal.
        assert!(run("kill -9 $$", b"").1.ends_with(&format!("{EXIT_LINE}137\n")));
    }

    #[test]
    fn the_program_has_no_new_child_and_passes_nothing_on() {
        // A descriptor that a program would pass on to its children.
        let mut open = [0; 2];
        // SAFETY: the pointer is to an array of two numbers.
        assert_eq!(unsafe { libc::pipe(open.as_mut_ptr()) }, 0);
        let script = "readlink /proc/self/fd/* | sort -u | grep -c pipe; ps -o ppid= $$";
        let (said, _) = run(script, b"");
        for fd in open {
            // SAFETY: the descriptor was just made and belongs to nobody else.
            drop(unsafe { File::from_raw_fd(fd) });
        }
        let mut lines = said.lines().map(str::trim);
        // The pipe between the commands of the script itself.
        assert_eq!(lines.next(), Some("1"), "{said}");
        // The parent is the shell that waits.
        assert_ne!(lines.next(), Some(std::process::id().to_string().as_str()));
        let thread = rustix::thread::gettid().as_raw_nonzero();
        let children = format!("/proc/self/task/{thread}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        assert_eq!(children.trim(), "");
    }

    #[test]
    fn interrupts_of_the_terminal_are_ignored_and_other_signals_are_not() {
        let (said, _) = run("grep -E 'SigIgn|SigBlk' /proc/self/status", b"");
        let bits = |name: &str| {
            let line = said.lines().find(|line| line.starts_with(name)).unwrap();
            u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
        };
        let bit = |signal: i32| 1_u64 << (signal - 1);
        assert_eq!(bits("SigBlk"), 0);
        let ignored = bits("SigIgn");
        assert_eq!(ignored & bit(libc::SIGINT), bit(libc::SIGINT), "{said}");
        assert_eq!(ignored & (bit(libc::SIGPIPE) | bit(libc::SIGCHLD) | bit(libc::SIGTERM)), 0);
    }

    #[test]
    fn messages_without_end_hold_nobody_up() {
        let script = "head -c 1000000 /dev/zero | tr '\\0' x >&2; echo done";
        let (said, messages) = run(script, b"");
        assert_eq!(said, "done\n");
        assert!(messages.len() <= MESSAGES_BYTES && messages.starts_with("xxx"));
    }

    #[test]
    fn a_program_that_is_missing_is_told_before_anything_starts() {
        let error = start(&["/no/such/ssh".into()]).unwrap_err();
        assert!(error.to_string().contains("has no program `/no/such/ssh`"), "{error}");
        assert!(start(&["no-such-ssh".into()]).is_err());
    }
}

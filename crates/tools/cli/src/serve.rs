//! `penstock serve`: the daemon of this host.

use std::fs::DirBuilder;
use std::io::IsTerminal as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Args, ValueEnum};
use penstock_client::config::{Config, Surroundings, Wanted, Where, nodes};
use penstock_daemon::{Guest, IdleEnd, Level, Log, Options, UserRange, read_guest_memory};
use penstock_link::Address;

use crate::failure::Failure;
use crate::table;

#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Address to listen on: unix:PATH, tcp:HOST:PORT, vsock:PORT for virtual machines,
    /// vsock:PATH:PORT for a virtual machine whose monitor has its socket at PATH, or local for the
    /// user's own socket. Can be given several times [default: local]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<String>,
    /// Memory that a virtual machine shares with this host. ADDRESS is the one of --listen at which
    /// this virtual machine connects. PATH is a file in a tmpfs, such as /dev/shm, which the
    /// hypervisor shows as an ivshmem device. After the path, `,size=SIZE` may give the size, a
    /// power of two [default: 256M], and `,sessions=N` the number of sessions that use the memory
    /// at a time [default: 4]. Can be given once for each virtual machine
    #[arg(long, value_name = "ADDRESS=PATH")]
    pub guest_memory: Vec<String>,
    /// Also serve this user (a name or a number) on Unix sockets. Can be given several times
    /// [default: only the user that runs the daemon]
    #[arg(long, value_name = "USER")]
    pub allow_user: Vec<String>,
    /// End after this number of seconds without a client [default: never]
    #[arg(long, value_name = "SECONDS")]
    pub idle_end: Option<u64>,
    /// File with the limits of users, see limits.toml(5). The daemon reads it again when it changes
    /// [default: no limits besides the built-in ones]
    #[arg(long, value_name = "FILE")]
    pub limits: Option<PathBuf>,
    /// Announce the daemon's TCP addresses on the local network, so that clients find it with
    /// `penstock discover` and PENSTOCK_NODES=discover
    #[arg(long)]
    pub announce: bool,
    /// Format of the log on standard error
    #[arg(long, value_enum, default_value_t = LogForm::Text)]
    pub log: LogForm,
    /// How far to confine the workers, which run the kernels of clients: off, basic, calls, files
    /// or full. A system that can do less does what it can, and `penstock status` says so
    /// [default: full, or PENSTOCK_CONFINE]
    #[arg(long, value_name = "LEVEL")]
    pub confine: Option<Level>,
    /// Refuse clients if workers are confined less than this [default: off, or
    /// PENSTOCK_REQUIRE_CONFINEMENT]
    #[arg(long, value_name = "LEVEL")]
    pub require_confinement: Option<Level>,
    /// Give each worker a Unix user and a group of its own from this range, such as 600000-600511,
    /// so that the kernels of different clients have different users. No user or group of this host
    /// may have a number of the range. The range has at least 512 numbers and belongs to this
    /// daemon alone, which root must run [default: workers have the user of the daemon]
    #[arg(long, value_name = "FIRST-LAST")]
    pub worker_users: Option<UserRange>,
    /// Serve one simulated device, for tests, instead of the devices of this host
    #[arg(long, value_enum, hide = true)]
    pub platform: Option<Platform>,
    /// End when the process that started this one ends
    #[arg(long, hide = true)]
    pub ends_with_parent: bool,
    /// Leave the session and the directory of the process that started this one
    #[arg(long, hide = true)]
    pub detached: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogForm {
    /// Lines of text for people
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Platform {
    /// A device in memory, which runs only kernels of its own
    Null,
}

/// Start of the line on standard output that says where the daemon listens. The guard of `penstock
/// run` waits for it.
pub const LISTENING: &str = "listening on ";

/// Name of the lock that a bridge holds in the directory of the user's own socket while it connects
/// or starts a daemon.
pub const BRIDGE_LOCK: &str = "bridge.lock";

/// Runs the daemon until it is told to end.
pub fn serve(args: &ServeArgs) -> Result<ExitCode, Failure> {
    if args.detached {
        detach()?;
    }
    let surroundings = Surroundings::of_process();
    let listen = addresses(&args.listen)?;
    let config = Config::load_for(Wanted::Nothing, &surroundings)?;
    let lock = surroundings.runtime_directory().join(BRIDGE_LOCK);
    let options = Options {
        allow_users: args
            .allow_user
            .iter()
            .map(|user| user_number(user))
            .collect::<Result<_, _>>()?,
        encryption: config.encryption_options(),
        // The default file need not exist yet.
        awaited_key: surroundings.key_file().filter(|_| config.key.is_none()),
        key: config.key,
        log: match args.log {
            LogForm::Text => Log::Text,
            LogForm::Json => Log::Json,
        },
        limits: args.limits.clone(),
        announce: args.announce,
        simulate: args.platform == Some(Platform::Null),
        ends_with_parent: args.ends_with_parent,
        idle_end: args
            .idle_end
            .map(|seconds| IdleEnd { after: Duration::from_secs(seconds), lock: lock.clone() }),
        confine: args.confine,
        require_confinement: args.require_confinement,
        worker_users: args.worker_users,
        guests: args.guest_memory.iter().map(|text| guest(text)).collect::<Result<_, _>>()?,
        listen,
    };
    penstock_daemon::serve(options, announce)
        .map_err(|error| Failure::Daemon(error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes this process independent of the login that started it: the end of its terminal sends no
/// signal, and the file system of its directory can be unmounted.
fn detach() -> Result<(), Failure> {
    // Fails only in the leader of a process group, which has left its session already.
    _ = rustix::process::setsid();
    let root = Path::new("/");
    std::env::set_current_dir(root).map_err(Failure::file(root, "change to"))
}

fn announce(addresses: &[Address]) {
    // At a terminal the log on standard error has just said it.
    if std::io::stdout().is_terminal() && std::io::stderr().is_terminal() {
        return;
    }
    let lines: String = addresses.iter().map(|address| format!("{LISTENING}{address}\n")).collect();
    // A daemon works just as well if nobody reads its output.
    _ = table::print(&lines);
}

/// Returns the addresses to listen on. Creates the directory of the user's own socket if it does
/// not exist.
fn addresses(listen: &[String]) -> Result<Vec<Address>, Failure> {
    let surroundings = Surroundings::of_process();
    let list = if listen.is_empty() { "local".to_owned() } else { listen.join(",") };
    let nodes = nodes::read_listeners(&list, &Where::Argument("--listen"), &surroundings)?;
    if nodes.iter().any(|node| node.name == "local") {
        own_directory(&surroundings)?;
    }
    Ok(nodes.into_iter().map(|node| node.address).collect())
}

/// Returns the directory of the user's own socket. Creates it if it does not exist.
pub fn own_directory(surroundings: &Surroundings<'_>) -> Result<PathBuf, Failure> {
    let directory = surroundings.runtime_directory();
    let made = DirBuilder::new().mode(0o700).recursive(true).create(&directory);
    made.map_err(Failure::file(&directory, "make"))?;
    if surroundings.is_private(&directory) {
        return Ok(directory);
    }
    Err(Failure::Argument {
        argument: directory.display().to_string(),
        reason:
            "others can write to this directory; remove it, or listen elsewhere (--listen unix:PATH)"
                .into(),
    })
}

/// Reads the memory of a guest.
fn guest(text: &str) -> Result<Guest, Failure> {
    let wrong =
        |reason: String| Failure::Argument { argument: format!("--guest-memory {text}"), reason };
    let (address, memory) = read_guest_memory(text).map_err(|reason| wrong(reason.to_owned()))?;
    let mut addresses = addresses(&[address.to_owned()])?;
    let address = addresses.pop().ok_or_else(|| wrong("the address is missing".to_owned()))?;
    Ok(Guest { address, memory })
}

/// Returns the number of a user. `id` also knows the users of a directory service, which no file of
/// this host lists.
fn user_number(user: &str) -> Result<u32, Failure> {
    if let Ok(number) = user.parse() {
        return Ok(number);
    }
    let unknown =
        |reason: String| Failure::Argument { argument: format!("--allow-user {user}"), reason };
    let said = Command::new("id").args(["-u", "--", user]).output();
    let said =
        said.map_err(|error| unknown(format!("cannot ask `id`: {error}; give the user's number")))?;
    let number =
        String::from_utf8_lossy(&said.stdout).trim().parse().ok().filter(|_| said.status.success());
    number.ok_or_else(|| {
        unknown("there is no such user; give a name or number that `id` knows".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_known_by_name_and_number() {
        assert_eq!(user_number("root").unwrap(), 0);
        assert_eq!(user_number("4000000000").unwrap(), 4_000_000_000);
        let error = user_number("no-such-user").unwrap_err().to_string();
        assert!(error.starts_with("--allow-user no-such-user: there is no such user"), "{error}");
        assert!(user_number("--help").is_err());
    }

    #[test]
    fn the_address_of_a_guest_may_leave_out_the_port() {
        let Guest { address, .. } = guest("vsock:/run/g=/dev/shm/g").unwrap();
        assert_eq!(address.to_string(), "vsock:/run/g:7367");
        let error = guest("/dev/shm/g").unwrap_err().to_string();
        assert!(error.starts_with("--guest-memory /dev/shm/g: write"), "{error}");
        assert!(guest("nowhere=/g").unwrap_err().to_string().contains("--listen"));
    }

    #[test]
    fn addresses_may_leave_out_the_port() {
        let listen = ["tcp:0.0.0.0", "unix:/a", "vsock:5", "vsock:/b"].map(str::to_owned);
        let found: Vec<String> =
            addresses(&listen).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(found, ["tcp:0.0.0.0:7367", "unix:/a", "vsock:any:5", "vsock:/b:7367"]);
        let error = addresses(&["gpu01".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("argument --listen: `gpu01`"), "{error}");
    }
}

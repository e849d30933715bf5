//! penstockd: the daemon alone, as `penstock serve`.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use penstock_daemon::{Guest, Level, NotARange, Options, UnknownLevel, read_guest_memory};
use penstock_link::{Address, EncryptionOptions, Rule, keys_folder};

const USAGE: &str = "\
usage: penstockd [--listen unix:PATH | --listen tcp:HOST:PORT | --listen vsock:PORT]...
                 [--guest-memory ADDRESS=PATH[,size=SIZE][,sessions=N]]...
                 [--key FILE] [--allow-user UID]... [--limits FILE] [--announce]
                 [--log text|json] [--confine LEVEL] [--require-confinement LEVEL]
                 [--worker-users FIRST-LAST]
                 [--ends-with-parent]
What each means: penstock serve --help";

fn main() -> ExitCode {
    penstock_process::signals::prepare();
    let mut args = std::env::args_os().skip(1).peekable();
    if args.peek().is_some_and(|arg| arg == "worker") {
        return penstock_daemon::worker_main();
    }
    if args.peek().is_some_and(|arg| arg == "--help" || arg == "-h") {
        _ = writeln!(std::io::stdout(), "{USAGE}");
        return ExitCode::SUCCESS;
    }
    let served = options(args).and_then(|options| {
        penstock_daemon::serve(options, announce).map_err(|error| error.to_string())
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("penstockd: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut args: impl Iterator<Item = OsString>) -> Result<Options, String> {
    let rule = Rule::configured()?;
    let encryption = EncryptionOptions { rule, folder: keys_folder()? };
    let mut options = Options { encryption, ..Options::default() };
    while let Some(arg) = args.next() {
        let arg = text(arg)?;
        let mut raw = || args.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            // Paths need not be text.
            "--key" => {
                options.key = Some(raw()?.into());
                continue;
            }
            "--limits" => {
                options.limits = Some(raw()?.into());
                continue;
            }
            _ => {}
        }
        let mut value = || text(raw()?);
        match arg.as_str() {
            "--listen" => {
                let address = Address::for_listener(&value()?);
                options.listen.push(address.map_err(|error| error.to_string())?);
            }
            "--guest-memory" => options.guests.push(guest(&value()?)?),
            "--allow-user" => {
                let user = value()?;
                options
                    .allow_users
                    .push(user.parse().map_err(|_| format!("`{user}` is no user's number"))?);
            }
            "--announce" => options.announce = true,
            "--log" => options.log = value()?.parse()?,
            "--confine" => options.confine = Some(level(&value()?)?),
            "--require-confinement" => options.require_confinement = Some(level(&value()?)?),
            "--worker-users" => {
                let range = value()?.parse().map_err(|error: NotARange| error.to_string())?;
                options.worker_users = Some(range);
            }
            // For tests, and not in the text above: the simulated device must not come by accident.
            "--platform" => {
                let platform = value()?;
                if platform != "null" {
                    return Err(format!("`{platform}` is not `null`"));
                }
                options.simulate = true;
            }
            "--ends-with-parent" => options.ends_with_parent = true,
            _ => return Err(format!("unknown option {arg}\n{USAGE}")),
        }
    }
    Ok(options)
}

/// Returns an argument that must be text.
fn text(argument: OsString) -> Result<String, String> {
    argument.into_string().map_err(|it| format!("{} is not UTF-8 text\n{USAGE}", it.display()))
}

fn level(text: &str) -> Result<Level, String> {
    text.parse().map_err(|error: UnknownLevel| error.to_string())
}

fn guest(text: &str) -> Result<Guest, String> {
    let (address, memory) = read_guest_memory(text).map_err(|why| format!("`{text}`: {why}"))?;
    let address = Address::for_listener(address).map_err(|error| error.to_string())?;
    Ok(Guest { address, memory })
}

fn announce(addresses: &[Address]) {
    let mut out = std::io::stdout().lock();
    for address in addresses {
        // The daemon also serves if nobody reads its output.
        _ = writeln!(out, "listening on {address}");
    }
    _ = out.flush();
}

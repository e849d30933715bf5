//! A node for the tests of this crate: `node SOCKET`, or `node tcp:HOST:PORT KEY-FILE`, serves
//! there until its parent ends. It is an example, because tests of a crate can find its examples,
//! but no programs of other crates.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use penstock_daemon::Options;

fn main() -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or_default();
    if argument == "worker" {
        return penstock_daemon::worker_main();
    }
    let is_remote = argument.starts_with("tcp:");
    let address = if is_remote { argument } else { format!("unix:{argument}") };
    let listen = match address.parse() {
        Ok(listen) => vec![listen],
        Err(error) => {
            eprintln!("node: {error}");
            return ExitCode::FAILURE;
        }
    };
    let key = std::env::args_os().nth(2).map(Into::into);
    let options = Options { listen, key, ends_with_parent: true, ..Options::default() };
    match penstock_daemon::serve(options, |addresses| {
        let mut out = std::io::stdout().lock();
        // If nobody reads this line, nobody waits for it.
        _ = addresses
            .iter()
            .try_for_each(|address| writeln!(out, "{address}"))
            .and_then(|()| out.flush());
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("node: {error}");
            ExitCode::FAILURE
        }
    }
}

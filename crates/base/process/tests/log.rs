//! What a process with `PENSTOCK_LOG` writes.

use std::process::Command;

use penstock_process::log;

/// Environment variable that is set in the process that writes messages.
const WRITES: &str = "PENSTOCK_PROCESS_WRITES";

/// Returns the lines of a process that writes one message of each kind.
fn lines(value: &str) -> Vec<String> {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command
        .args(["--exact", "messages", "--nocapture"])
        .env(WRITES, "1")
        .env("PENSTOCK_LOG", value);
    let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
    said.lines().filter(|line| line.starts_with("penstock: ")).map(str::to_owned).collect()
}

#[test]
fn messages() {
    if std::env::var_os(WRITES).is_some() {
        log!(Debug, "{} is for debugging", 1);
        // As the macro does in another crate.
        log::write(log::Level::Info, "penstock_link::socket", format_args!("the link is open"));
        log::write(log::Level::Trace, "penstock_opencl", format_args!("a step"));
        return;
    }
    let (open, step) =
        ("penstock: [info link] the link is open", "penstock: [trace opencl] a step");
    assert_eq!(lines(""), [""; 0]);
    assert_eq!(lines("0"), [""; 0]);
    assert_eq!(lines("1"), [open]);
    assert_eq!(lines("warn,link=debug"), [open]);
    assert_eq!(lines("opencl=trace"), [step]);
    assert_eq!(lines("trace")[1..], [open, step]);
    assert!(lines("trace")[0].ends_with("1 is for debugging"));
    // A wrong value is told once, and nothing else is written.
    let wrong = lines("loud");
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    assert!(wrong[0].starts_with("penstock: variable PENSTOCK_LOG: `loud` is not"), "{wrong:?}");
}

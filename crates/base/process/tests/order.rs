//! What `stdout::print` prints stays in order with what C prints.

use std::process::Command;

/// Environment variable that is set in the process that prints.
const PRINTS: &str = "PENSTOCK_PROCESS_PRINTS";

#[test]
fn it_stays_in_order_with_what_c_prints() {
    if std::env::var_os(PRINTS).is_some() {
        for text in [c"first ", c"third "] {
            // SAFETY: the format has no conversions. Into a pipe, C's output is buffered.
            unsafe { libc::printf(text.as_ptr()) };
            penstock_process::stdout::print(if text == c"first " {
                b"second "
            } else {
                b"fourth\0."
            });
        }
        return;
    }
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command
        .args(["--exact", "it_stays_in_order_with_what_c_prints", "--nocapture"])
        .env(PRINTS, "1");
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(said.contains("first second third fourth\0."), "{said:?}");
}

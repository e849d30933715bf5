//! The end of what a guest's console and QEMU have said.

use std::collections::VecDeque;
use std::io::{self, Read, Write as _};
use std::process::Child;
use std::sync::Arc;
use std::thread::JoinHandle;

use penstock_process::lock::Lock;

use crate::limits::{CONSOLE_BYTES_MAX, CONSOLE_LINES_SHOWN};

/// Reads the console until QEMU ends.
#[derive(Debug)]
pub struct Console {
    kept: Arc<Lock<VecDeque<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Console {
    /// Reads the outputs of QEMU: the console on standard output, its own messages on standard
    /// error. Also shows them on this process's standard error if `shows` is set.
    ///
    /// # Errors
    /// If the system cannot start a thread. QEMU must not go on then, because nobody reads its
    /// outputs.
    pub fn watch(qemu: &mut Child, shows: bool) -> io::Result<Self> {
        let mut console = Self { kept: Arc::default(), readers: Vec::new() };
        if let Some(stdout) = qemu.stdout.take() {
            console.read(stdout, shows)?;
        }
        if let Some(stderr) = qemu.stderr.take() {
            console.read(stderr, shows)?;
        }
        Ok(console)
    }

    fn read(&mut self, mut source: impl Read + Send + 'static, shows: bool) -> io::Result<()> {
        let kept = Arc::clone(&self.kept);
        self.readers.push(penstock_process::start("console", move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = source.read(&mut bytes) {
                let bytes = bytes.get(..length).unwrap_or_default();
                if shows {
                    // The guest is not trusted: it must not steer the terminal.
                    _ = io::stderr().write_all(printable(bytes).as_bytes());
                }
                let mut kept = kept.lock();
                kept.extend(bytes);
                let surplus = kept.len().saturating_sub(CONSOLE_BYTES_MAX);
                kept.drain(..surplus);
            }
        })?);
        Ok(())
    }

    /// Returns the last lines. QEMU must have ended.
    pub fn last_lines(&mut self) -> String {
        for reader in self.readers.drain(..) {
            _ = reader.join();
        }
        let mut kept = self.kept.lock();
        let text = printable(kept.make_contiguous());
        let lines: Vec<&str> =
            text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let first = lines.len().saturating_sub(CONSOLE_LINES_SHOWN);
        lines.get(first..).unwrap_or_default().join("\n")
    }
}

fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let letters = text.chars().filter(|letter| *letter != '\r');
    letters.map(|it| if it.is_control() && it != '\n' && it != '\t' { '?' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Returns the last lines of a shell's outputs.
    fn last_lines(script: &str) -> String {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut console = Console::watch(&mut child, false).unwrap();
        child.wait().unwrap();
        console.last_lines()
    }

    #[test]
    fn the_last_lines_of_a_long_console_stay() {
        let text = last_lines("seq 20000; printf '\\033[2Jevil\\r\\n'");
        assert!(text.ends_with("\n20000\n?[2Jevil"), "{text}");
        assert_eq!(text.lines().count(), CONSOLE_LINES_SHOWN);
    }

    #[test]
    fn messages_of_qemu_are_kept() {
        assert_eq!(last_lines("echo no such device >&2; echo"), "no such device");
    }
}

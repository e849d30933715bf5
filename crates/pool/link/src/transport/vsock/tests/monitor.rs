//! A monitor for tests. Its "guest" listens where a guest's own connections to the host arrive.

use std::io::{Read as _, Write as _};
use std::net::Shutdown as How;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// What a test makes of the guest.
#[derive(Debug, Default)]
pub(super) struct Guest {
    /// The guest's kernel answers nothing, and no bytes pass.
    pub(super) is_paused: AtomicBool,
    /// Number of connections that the guest's kernel has refused.
    pub(super) refusals: AtomicU64,
    /// Time in ms that 64 KiB need.
    pub(super) slowness_ms: AtomicU64,
}

impl Guest {
    /// Waits while the guest is paused.
    fn wake(&self) {
        while self.is_paused.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Starts the monitor and returns its address. The monitor ends when its folder has gone.
pub(super) fn start(folder: &Path, guest: Arc<Guest>) -> String {
    let path = folder.join("guest");
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = format!("vsock:{}:7", path.display());
    thread::spawn(move || {
        while path.exists() {
            match listener.accept() {
                Ok((host, _)) => drop(thread::spawn({
                    let (path, guest) = (path.clone(), guest.clone());
                    move || pass_on(host, &path, &guest)
                })),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
    });
    address
}

fn pass_on(mut host: UnixStream, path: &Path, state: &Arc<Guest>) {
    host.set_nonblocking(false).unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        if host.read_exact(&mut byte).is_err() {
            return;
        }
        line.extend(byte);
    }
    let line = String::from_utf8(line).unwrap();
    let port = line.strip_prefix("CONNECT ").unwrap().trim_end();
    let mut guests = path.as_os_str().to_owned();
    guests.push(format!("_{port}"));
    state.wake();
    let Ok(guest) = UnixStream::connect(PathBuf::from(guests)) else {
        drop(host);
        state.refusals.fetch_add(1, Ordering::Relaxed);
        return;
    };
    if host.write_all(b"OK 1073741824\n").is_err() {
        return;
    }
    let (host_too, guest_too) = (host.try_clone().unwrap(), guest.try_clone().unwrap());
    let state_too = state.clone();
    thread::spawn(move || pump(host_too, guest_too, &state_too));
    pump(guest, host, state);
}

fn pump(mut from: UnixStream, mut to: UnixStream, state: &Guest) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let got = from.read(&mut bytes);
        state.wake();
        thread::sleep(Duration::from_millis(state.slowness_ms.load(Ordering::Relaxed)));
        match got {
            Ok(count @ 1..) if to.write_all(&bytes[..count]).is_ok() => {}
            Ok(0) | Err(_) => return drop(to.shutdown(How::Write)),
            Ok(_) => return drop(from.shutdown(How::Both)),
        }
    }
}

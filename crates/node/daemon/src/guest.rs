//! The memory that guests share with this host: how it is named, and to which address it belongs.

use std::sync::Arc;

use penstock_link::{Address, GuestMemory, LinkError, Region};

/// A virtual machine that shares memory with this host.
#[derive(Clone, Debug)]
pub struct Guest {
    /// One of the addresses that the daemon listens on. Only this guest connects there.
    pub address: Address,
    pub memory: GuestMemory,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestError {
    /// A guest has memory, but no listener.
    #[error(
        "--guest-memory names {address}, where the daemon does not listen; give the same address \
         with --listen"
    )]
    NoListener { address: String },
    /// Two guests have one address.
    #[error("--guest-memory names {address} twice; give each guest an address of its own")]
    TwoGuests { address: String },
    /// The memory cannot be used.
    #[error(transparent)]
    Memory(#[from] LinkError),
}

/// Opens the memory of the guests. Returns a region, or `None`, for each address.
pub(crate) fn regions(
    listen: &[Address],
    guests: &[Guest],
) -> Result<Vec<Option<Arc<Region>>>, GuestError> {
    let mut regions: Vec<Option<Arc<Region>>> = listen.iter().map(|_| None).collect();
    for Guest { address, memory } in guests {
        let at = listen.iter().position(|listens| listens == address);
        let Some(region) = at.and_then(|at| regions.get_mut(at)) else {
            return Err(GuestError::NoListener { address: address.to_string() });
        };
        if region.is_some() {
            return Err(GuestError::TwoGuests { address: address.to_string() });
        }
        *region = Some(Region::open(memory)?);
    }
    Ok(regions)
}

/// Reads `ADDRESS=PATH[,size=SIZE][,sessions=N]`. Returns the text of the address, and the memory.
///
/// # Errors
/// Fails with a reason for the user.
pub fn read_guest_memory(text: &str) -> Result<(&str, GuestMemory), &'static str> {
    let split = text.split_once('=');
    let split = split.filter(|(address, rest)| !address.is_empty() && !rest.is_empty());
    let (address, rest) = split.ok_or("write ADDRESS=PATH, with an ADDRESS of --listen")?;
    let mut parts = rest.split(',');
    let path = parts.next().unwrap_or_default().into();
    let mut memory = GuestMemory { path, bytes: None, sessions: None };
    for part in parts {
        match part.split_once('=') {
            Some(("size", size)) => {
                let bytes = bytes(size);
                let why = "the size is not a number, or a number and K, M or G, for example 512M";
                memory.bytes = Some(bytes.ok_or(why)?);
            }
            Some(("sessions", count)) => {
                memory.sessions =
                    Some(count.parse().map_err(|_| "the number of sessions is not a number")?);
            }
            _ => return Err("after the path only size=SIZE and sessions=N may follow"),
        }
    }
    Ok((address, memory))
}

/// Reads a number of bytes, for example `4096` or `512M`.
fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (text.get(..text.len() - 1)?, 10),
        b'M' => (text.get(..text.len() - 1)?, 20),
        b'G' => (text.get(..text.len() - 1)?, 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_guest_is_read() {
        let path = std::path::PathBuf::from("/dev/shm/g");
        let plain = GuestMemory { path: path.clone(), bytes: None, sessions: None };
        let read = read_guest_memory;
        assert_eq!(read("vsock:/run/g=/dev/shm/g"), Ok(("vsock:/run/g", plain)));
        let all = GuestMemory { path, bytes: Some(512 << 20), sessions: Some(8) };
        assert_eq!(read("vsock:5=/dev/shm/g,size=512M,sessions=8"), Ok(("vsock:5", all)));
        for (text, why) in [
            ("/dev/shm/g", "write ADDRESS=PATH"),
            ("vsock:5=", "write ADDRESS=PATH"),
            ("vsock:5=/g,size=big", "the size is not a number"),
            ("vsock:5=/g,size=", "the size is not a number"),
            ("vsock:5=/g,size=99999999999G", "the size is not a number"),
            ("vsock:5=/g,sessions=-1", "the number of sessions is not a number"),
            ("vsock:5=/g,fast", "only size=SIZE and sessions=N"),
        ] {
            assert!(read(text).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn memory_belongs_to_one_listener() {
        let memory = GuestMemory { path: "/nowhere/g".into(), bytes: None, sessions: None };
        let guest =
            |address: &str| Guest { address: address.parse().unwrap(), memory: memory.clone() };
        let listen = [Address::unix("/a"), Address::tcp("b", 1)];
        let why = |guests: &[Guest]| regions(&listen, guests).unwrap_err().to_string();
        assert!(why(&[guest("tcp:b:2")]).contains("where the daemon does not listen"));
        assert!(why(&[guest("tcp:b:1")]).contains("/nowhere/g"));
        assert_eq!(regions(&listen, &[]).unwrap().len(), 2);
    }
}

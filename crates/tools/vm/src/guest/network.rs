//! Sets up the loopback of a guest, and its network card behind QEMU's user-mode network, which
//! always has the same addresses. No DHCP client is needed.
//!
//! The kernel is asked over netlink (rtnetlink(7)), because a guest has no `ip`.

use std::io;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, sendto,
    socket_with,
};

use crate::limits::CONNECT_MAX;
use crate::machine::network::{GATEWAY, GUEST, PREFIX_BITS};

// Numbers of linux/netlink.h and linux/rtnetlink.h, most of them with the names from there.
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_INTERFACE: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const IFF_UP: u32 = 1;
const FAMILY_IPV4: u8 = 2;
/// Table of the routes that everybody uses.
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RTN_UNICAST: u8 = 1;

const HEADER_BYTES: usize = 16;

/// The only card of a guest. Nobody renames it.
const CARD: &str = "eth0";
const LOOPBACK: &str = "lo";

/// Switches the loopback on, which programs expect of any machine. The kernel gives it its address.
pub fn set_up_loopback() -> io::Result<()> {
    let socket = socket()?;
    let loopback = index(&socket, LOOPBACK)?;
    ask(&socket, RTM_NEWLINK, 0, &link_up(loopback))
}

/// Gives the card its address and the way to the host.
pub fn set_up_card() -> io::Result<()> {
    let socket = socket()?;
    let card = index(&socket, CARD)?;
    ask(&socket, RTM_NEWLINK, 0, &link_up(card))?;
    ask(&socket, RTM_NEWADDR, NLM_F_CREATE, &address(card))?;
    ask(&socket, RTM_NEWROUTE, NLM_F_CREATE, &default_route(card))
}

fn socket() -> io::Result<OwnedFd> {
    // No protocol means number 0, which is NETLINK_ROUTE.
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}

/// Returns the number of an interface. The card appears some time after its module was loaded.
fn index(socket: &OwnedFd, name: &str) -> io::Result<u32> {
    let deadline = Instant::now() + CONNECT_MAX;
    loop {
        match netdevice::name_to_index(socket, name) {
            Ok(index) => return Ok(index),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// `struct ifinfomsg`: sets the flag that the interface is up.
fn link_up(index: u32) -> Vec<u8> {
    let parts = [[0; 4], index.to_ne_bytes(), IFF_UP.to_ne_bytes(), IFF_UP.to_ne_bytes()];
    parts.concat()
}

/// `struct ifaddrmsg` and its attributes.
fn address(index: u32) -> Vec<u8> {
    let mut body = vec![FAMILY_IPV4, PREFIX_BITS, 0, 0];
    body.extend_from_slice(&index.to_ne_bytes());
    for kind in [IFA_LOCAL, IFA_ADDRESS] {
        body.extend_from_slice(&attribute(kind, GUEST.octets()));
    }
    body
}

/// `struct rtmsg` and its attributes.
fn default_route(index: u32) -> Vec<u8> {
    let mut body =
        vec![FAMILY_IPV4, 0, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, 0, RTN_UNICAST, 0, 0, 0, 0];
    body.extend_from_slice(&attribute(RTA_GATEWAY, Ipv4Addr::octets(&GATEWAY)));
    body.extend_from_slice(&attribute(RTA_INTERFACE, index.to_ne_bytes()));
    body
}

fn attribute(kind: u16, value: [u8; 4]) -> Vec<u8> {
    const BYTES: u16 = 8;
    [BYTES.to_ne_bytes().as_slice(), &kind.to_ne_bytes(), &value].concat()
}

/// Sends one request and reads the kernel's answer.
fn ask(socket: &OwnedFd, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(HEADER_BYTES + body.len()).map_err(io::Error::other)?;
    let flags = flags | NLM_F_REQUEST | NLM_F_ACK;
    let message =
        [length.to_ne_bytes().as_slice(), &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8], body]
            .concat();
    sendto(socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0_u8; 1024];
    let (read, _) = recv(socket, &mut answer, RecvFlags::empty())?;
    outcome(answer.get(..read).unwrap_or_default())
}

/// Reads an answer: a header, and the negative number of an error or 0.
fn outcome(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).and_then(|it| it.try_into().ok()).map(u16::from_ne_bytes);
    let code = answer.get(HEADER_BYTES..HEADER_BYTES + 4).and_then(|it| it.try_into().ok());
    match (kind, code.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => Err(io::Error::from_raw_os_error(-code)),
        _ => Err(io::Error::other("the kernel's answer is no answer of netlink")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    /// The kernel understands the requests: it misses the interface or the gateway, or says that
    /// the user may not do this. It calls a malformed request invalid.
    #[test]
    fn the_kernel_understands_the_requests() {
        let socket = socket().unwrap();
        let no_card = 0x7fff_fff0;
        for (kind, body) in [
            (RTM_NEWLINK, link_up(no_card)),
            (RTM_NEWADDR, address(no_card)),
            (RTM_NEWROUTE, default_route(no_card)),
        ] {
            let error = ask(&socket, kind, 0, &body).unwrap_err().raw_os_error().unwrap();
            let errno = Errno::from_raw_os_error(error);
            assert!(
                [Errno::NODEV, Errno::PERM, Errno::NETUNREACH].contains(&errno),
                "{kind}: {errno}"
            );
        }
    }

    #[test]
    fn answers_are_read() {
        let answer = |code: i32| {
            [&[36, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], code.to_ne_bytes().as_slice()]
                .concat()
        };
        assert!(outcome(&answer(0)).is_ok());
        assert_eq!(outcome(&answer(-17)).unwrap_err().raw_os_error(), Some(17));
        assert!(outcome(&[0; 16]).is_err());
    }
}

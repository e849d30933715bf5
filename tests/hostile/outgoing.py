"""Links of workers to other nodes: the daemon makes them, so a kernel finds no key in its worker,
opens no connection, and leads none of those that the worker has to anywhere else."""

import contextlib
import errno
import os
import socket
import struct
from pathlib import Path

import keystate
import wire
from confinement import CLOSE, CONNECT, LEVELS, SOCKET, Kernel, connects_out, node_at
from node import Node
from patience import lane, wait_for
from peers import admitted
from processes import is_alive
from wire import Client

DUP, SENDTO, SOCKETPAIR = 32, 44, 53
MSG_FASTOPEN = 0x20000000


def linked(here, there):
    """Has a worker of one daemon connect to a worker of the other. Returns the status."""
    guest, host = Client(here), Client(there)
    ticket, request = os.urandom(32), guest.id()
    assert host.request("AdmitPeer", 5, payload=ticket)[0] == 0
    invited = wire.invitation([there.address("tcp")], ticket)
    guest.send("ConnectPeer", request, 6, payload=invited)
    guest.until(lambda: request in guest.replies)
    return guest, host, guest.replies[request][0]


def keys_of_a_linked_worker(node):
    """Workers of two daemons have an encrypted link. Neither has the pool's key or an identity in
    its memory. Their daemons have both. Nobody keeps the messages in which the daemons have handed
    over the ends of the link."""
    encrypted = {
        "PENSTOCK_ENCRYPTION": "always",
        "XDG_CONFIG_HOME": str(node.folder),
        "PENSTOCK_KEY": str(node.folder / "key"),
    }
    with Node((), encrypted) as here, Node((), encrypted) as there:
        guest, host, status = linked(here, there)
        assert status == 0, status
        identity = keystate.of_identity(node.folder / "penstock" / "identity")
        secrets = {"key": [keystate.of_key(node.key), node.key], "identity": identity}
        # Only root may look into processes that hide their memory.
        if os.getuid() == 0:
            for name, secret in secrets.items():
                for daemon in (here, there):
                    found = keystate.has_in_memory(daemon.daemon.pid, secret)
                    assert found, f"the test does not know what to look for: {name}"
                for client in (guest, host):
                    found = keystate.has_in_memory(client.worker, secret)
                    assert not found, f"a kernel can find the {name}"
            for process in (here.daemon.pid, there.daemon.pid, guest.worker, host.worker):
                found = keystate.has_in_memory(process, keystate.of_handovers())
                assert not found, "a message with the secrets of a link was not cleared"
        guest.close()
        host.close()
        wait_for(lambda: not is_alive(guest.worker), "the worker lives on")


def a_key_does_not_open_the_network(node):
    """The daemon has a key, and its workers have no sockets for networks all the same."""
    told = node.control()["confinement"]
    assert (told["level"], told["network"]) == ("full", "closed"), told
    kernel = Kernel(node)
    assert not connects_out(node, kernel), "a kernel connects out"
    for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_VSOCK):
        assert kernel.call(SOCKET, family, socket.SOCK_STREAM, 0) == -errno.EPERM, family
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        made = kernel.call(SOCKETPAIR, socket.AF_UNIX, kind, 0, kernel.put(64, bytes(8)))
        assert made == -errno.EPERM, kind
    kernel.client.close()


def sockets_of_the_host_that_a_client_names(node):
    """Only a client of the daemon's own user has the daemon connect to the path of a socket: who
    listens there sees the daemon's user at the other end."""

    def knocks(here, way):
        """Returns whether the daemon connects to a socket that a client names."""
        with socket.socket(socket.AF_UNIX) as listener:
            path = here.folder / f"victim-{way}"
            listener.bind(str(path))
            listener.listen()
            client = Client(here, way)
            payload = wire.invitation([f"unix:{path}"], os.urandom(32))
            # Nobody answers there, so the attempt ends after the time for a hello.
            assert client.request("ConnectPeer", 6, payload=payload)[0] != 0
            client.close()
            listener.settimeout(0)
            try:
                listener.accept()[0].close()
            except BlockingIOError:
                return False
            return True

    assert knocks(node, "unix"), "the test does not know how the daemon connects"
    assert not knocks(node, "tcp"), "a client of the network uses the daemon's rights on its host"
    with Node((), {"PENSTOCK_PEER_NETWORKS": "none"}) as closed:
        assert not knocks(closed, "unix"), "`none` does not cover the paths of sockets"


def tcp_sockets(process):
    """Returns the descriptors of a process that are sockets of TCP."""
    inodes = {line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
    found = {}
    for link in Path(f"/proc/{process}/fd").iterdir():
        # A descriptor may have been closed since the folder was read.
        with contextlib.suppress(FileNotFoundError):
            found[os.readlink(link).removeprefix("socket:").strip("[]")] = int(link.name)
    return [descriptor for inode, descriptor in found.items() if inode in inodes]


def reconnects(node, kernel, number):
    """A kernel takes the socket of a link to another worker, ends the connection, and connects the
    socket to another port. Returns which of the ways there worked."""
    peer = admitted(node, kernel.client, number)
    # The daemon hands the socket to the worker after it has welcomed the peer.
    wait_for(lambda: tcp_sockets(kernel.client.worker), "the worker has no socket of the peer")
    found = tcp_sockets(kernel.client.worker)
    assert len(found) == 1, f"the worker has other sockets than that of the peer: {found}"
    worked = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = struct.pack(">H", listener.getsockname()[1])
        where = struct.pack("<H", socket.AF_INET) + port + socket.inet_aton("127.0.0.1") + bytes(8)
        # The worker closes its own descriptor when the link has ended.
        file = kernel.call(DUP, found[0])
        assert file >= 0, file
        nowhere, there = kernel.put(600, bytes(16)), kernel.put(512, where)
        worked.append(kernel.call(CONNECT, file, nowhere, 16) == 0)
        worked.append(kernel.call(CONNECT, file, there, 16) == 0)
        kernel.call(CONNECT, file, nowhere, 16)
        worked.append(kernel.call(SENDTO, file, there, 1, MSG_FASTOPEN, there, 16) == 1)
        kernel.call(CLOSE, file)
    peer.close()
    wait_for(lambda: not tcp_sockets(kernel.client.worker), "the worker keeps a lost socket")
    return {way for way, it in enumerate(worked) if it}


def reconnects_at(level):
    def run(_):
        with node_at(level, "pocl") as node:
            node.settle()
            kernel = Kernel(node)
            is_stopped, worked = LEVELS.index(level) >= LEVELS.index("calls"), set()
            # The worker, which sees the end of the link, may come before the kernel.
            for turn in range(10):
                worked |= reconnects(node, kernel, 77 + turn)
                if is_stopped or len(worked) == 3:
                    break
            assert len(worked) == (0 if is_stopped else 3), f"{len(worked)} of 3 ways worked"
            kernel.client.close()
            node.must_live()

    run.__name__ = f"a_link_that_a_kernel_leads_elsewhere_at_level_{level}"
    return lane("test" if level in ("off", "full") else "all")(run)


ATTACKS = [
    *(reconnects_at(level) for level in LEVELS),
    keys_of_a_linked_worker,
    a_key_does_not_open_the_network,
    sockets_of_the_host_that_a_client_names,
]

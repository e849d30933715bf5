"""Clients that send a correct hello, then corrupt the memory that they share with their worker, or
send nothing."""

import contextlib
import fcntl
import mmap
import os
import socket
import struct

import wire
from node import hangs_up
from patience import lane
from wire import frame


def authenticated_and_gone(node):
    """Clients that authenticate and leave, or that offer something else than rings."""
    node.settle()
    for turn in range(30):
        connection = wire.enter(
            node.address("unix" if turn % 2 else "tcp"), None if turn % 2 else node.key
        )
        connection.close()
    odd = wire.dial(node.address("unix"))
    wire.enter(node.address("unix"), connection=odd, hello=wire.hello_bytes(features=7))
    odd.sendall(b"RINGS  1")
    assert hangs_up(odd) is not None, "rings without rings"
    for fds in (
        [0],
        [0, 0, 0, 0],
        rings(seal=False),
        rings(size=4096),
        rings(size=3 << 20),
        rings(size=1 << 40),
    ):
        bad = wire.dial(node.address("unix"))
        wire.enter(node.address("unix"), connection=bad, hello=wire.hello_bytes(features=7))
        size = struct.unpack("<I", wire.exactly(bad, 4))[0]
        wire.exactly(bad, size)
        socket.send_fds(bad, [b"RINGS  1"], fds)
        assert hangs_up(bad) is not None, "memory that is no ring was taken"
        for fd in fds:
            if fd > 2:
                os.close(fd)


@lane("all")
def a_client_that_offers_no_rings(node):
    """It promises rings and says nothing more. It must not hold its worker for ever."""
    mute = wire.dial(node.address("unix"))
    wire.enter(node.address("unix"), connection=mute, hello=wire.hello_bytes(features=7))
    assert hangs_up(mute) is not None, "it holds its worker for ever"


def rings(size=(4 << 20) + 4096, seal=True):
    fds = []
    for _ in range(2):
        fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        if seal:
            fcntl.fcntl(fd, 1033, 2 | 4)
        fds.append(fd)
    return [*fds, *(end.detach() for end in socket.socketpair()[:1])]


def counts_that_can_not_be(node):
    """A client with wrong counts in its rings. Its session must end, without an access outside the
    rings."""
    for head, tail in ((0, 1 << 63), (0, (4 << 20) + 1), (5, 0), (1 << 40, 0), (0, 100)):
        client = wire.dial(node.address("unix"))
        wire.enter(node.address("unix"), connection=client, hello=wire.hello_bytes(features=1))
        size = struct.unpack("<I", wire.exactly(client, 4))[0]
        wire.exactly(client, size)
        fds = rings()
        socket.send_fds(client, [b"RINGS  1"], fds)
        to_worker, to_client = (mmap.mmap(fd, (4 << 20) + 4096) for fd in fds[:2])
        # In the last case 100 bytes of garbage, which begin with an invalid opcode.
        to_worker[4096:4196] = b"\xee" * 100
        to_client[0:8] = struct.pack("<Q", head)
        to_worker[128:136] = struct.pack("<Q", tail)
        if head:
            # A correct ping, whose answer meets the wrong count.
            to_worker[4096:4120] = frame("Ping", 1)
            to_worker[128:136] = struct.pack("<Q", 24)
        with contextlib.suppress(OSError):
            client.sendall(b"\1")
        # With the wrong count for answers, the session may also go on.
        ended = head or hangs_up(client)
        for mapping in (to_worker, to_client):
            mapping.close()
        for fd in fds:
            os.close(fd)
        client.close()
        assert ended is not None, f"head {head}, tail {tail}: goes on"


ATTACKS = [authenticated_and_gone, a_client_that_offers_no_rings, counts_that_can_not_be]

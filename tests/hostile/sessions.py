"""What a client, or a process that claims to be its peer, can make a worker remember or start."""

import contextlib
import os
import socket

import wire
from clients import MEBI, memory_of
from wire import Client, frame

OBJECTS_MAX = 1 << 20
OUT_OF_RESOURCES = -5


def threads_of(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def failures_of_a_peer(node):
    """Failed transfers that no client waits for, as many as a session has objects. Then the link to
    that peer must end."""
    client, ticket = Client(node).setup(), os.urandom(32)
    assert client.request("AdmitPeer", 5, payload=ticket)[0] == 0
    expected, waits = client.id(), client.id()
    client.send("ExpectEvent", expected, 5)
    client.send("Marker", client.queue, waits, waits=[expected])
    client.ping()
    before = memory_of(client.worker)
    peer = wire.enter(node.address("tcp"), node.key, wire.PEER, ticket)
    with contextlib.suppress(OSError):
        for start in range(1, 2 * OBJECTS_MAX, 4096):
            peer.sendall(
                b"".join(frame("TransferData", start + n, OUT_OF_RESOURCES) for n in range(4096))
            )
    assert client.wait(waits) < 0, "the peer is still heard"
    grown = memory_of(client.worker) - before
    assert grown < 512 * MEBI, f"{grown // MEBI} MiB"
    client.close()
    peer.close()


def threads_for_peers(node):
    """The same peer is invited repeatedly, at an address that does not answer. The worker may start
    one thread for each invitation, then the session must end."""
    listener = socket.create_server(("127.0.0.1", 0))
    here = f"tcp:127.0.0.1:{listener.getsockname()[1]}"
    client = Client(node)
    client.ping()
    before = threads_of(client.worker)
    for number in range(8):
        client.send(
            "ConnectPeer",
            client.id(),
            50 + number,
            payload=wire.invitation([here] * 100, bytes(32)),
        )
    client.ping()
    assert threads_of(client.worker) <= before + 8
    with contextlib.suppress(OSError):
        for _ in range(500):
            client.send("ConnectPeer", client.id(), 50, payload=wire.invitation([here], bytes(32)))
    try:
        client.ping()
    except Exception:
        return
    finally:
        listener.close()
    raise AssertionError(f"{threads_of(client.worker)} threads")


ATTACKS = [failures_of_a_peer, threads_for_peers]

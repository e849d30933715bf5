"""A client that invites workers of other nodes, or claims to be one: tickets, and data over such a
link."""

import contextlib
import os
import socket
import threading
import time

import wire
from clients import MEBI, ends_alone, memory_of
from patience import wait_for
from processes import is_alive
from strangers import refused
from wire import Client, frame


def tickets(node):
    """Tickets that are unknown, used twice, or another session's, and more tickets than allowed."""
    for way in ("unix", "tcp"):
        key = node.key if way == "tcp" else None
        refused(
            lambda: wire.enter(node.address(way), key, wire.PEER, os.urandom(32)), wire.WRONG_TICKET
        )
        refused(lambda: wire.enter(node.address(way), key, wire.PEER, bytes(32)), wire.WRONG_TICKET)
    client, ticket = Client(node).setup(), os.urandom(32)
    assert client.request("AdmitPeer", 5, payload=ticket)[0] == 0
    refused(
        lambda: wire.enter(node.address("tcp"), os.urandom(32), wire.PEER, ticket, check=False),
        wire.WRONG_KEY,
    )
    # Another session cannot take the ticket over.
    thief, request = Client(node), 77
    thief.send("AdmitPeer", request, 5, payload=ticket)
    # The daemon takes a worker's messages in their order, so it has answered the first one, too.
    assert thief.request("AdmitPeer", 6, payload=os.urandom(32))[0] == 0
    peer = wire.enter(node.address("tcp"), node.key, wire.PEER, ticket)
    refused(lambda: wire.enter(node.address("tcp"), node.key, wire.PEER, ticket), wire.WRONG_TICKET)
    # The peer has reached the first session: the client learns of an event that the peer announces.
    event, waits = client.id(), client.id()
    client.send("ExpectEvent", event, 5)
    client.send("Marker", client.queue, waits, waits=[event])
    client.ping()
    assert waits not in client.ended
    peer.sendall(frame("PeerEvent", event, 0))
    assert client.wait(waits) == 0
    thief.close()
    # An unused ticket becomes invalid with its session.
    lost = os.urandom(32)
    assert client.request("AdmitPeer", 6, payload=lost)[0] == 0
    client.close()
    wait_for(lambda: not is_alive(client.worker), "the worker lives on")
    wait_for(
        lambda: not any(one["worker"] == client.worker for one in node.control()["sessions"]),
        "the session is still listed",
    )
    refused(lambda: wire.enter(node.address("tcp"), node.key, wire.PEER, lost), wire.WRONG_TICKET)
    many = Client(node)
    batch = b"".join(
        frame("AdmitPeer", 1000 + n, 10 + n, payload=os.urandom(32)) for n in range(1100)
    )
    ends_alone(node, many, lambda: many.connection.sendall(batch), "PEERS_MAX")


def admitted(node, client, number):
    """Opens a link to a client's worker, as the peer with this number."""
    ticket = os.urandom(32)
    assert client.request("AdmitPeer", number, payload=ticket)[0] == 0
    return wire.enter(node.address("tcp"), node.key, wire.PEER, ticket)


def data_of_another_peer(node):
    """A peer sends content and ends of events that the client expects from another peer, before and
    after the client names that other peer."""
    client, size, patience_s = Client(node).setup(), 4096, 0.5
    right, forged = b"r" * size, b"f" * size
    for number, early in ((10, True), (20, False)):
        true, forger = admitted(node, client, number), admitted(node, client, number + 1)
        mem, transfer, arrival, told, waits, own = (
            client.buffer(size),
            client.id(),
            client.id(),
            client.id(),
            client.id(),
            client.id(),
        )

        def announce():
            client.send("ReceiveMem", mem, arrival, transfer, number, 0, size)
            client.send("ExpectEvent", told, number)
            client.send("Marker", client.queue, waits, waits=[told])
            client.ping()

        def forge():
            forger.sendall(frame("TransferData", transfer, 0, payload=forged))
            forger.sendall(frame("TransferData", transfer, -5))
            if early:
                # The id of an event that a command will have. The peer must not take it.
                forger.sendall(frame("PeerEvent", own, 0))
            forger.sendall(frame("PeerEvent", told, 0))
            time.sleep(patience_s)

        for act in (forge, announce) if early else (announce, forge):
            act()
        client.ping()
        assert arrival not in client.ended, "a peer has sent another peer's content"
        assert waits not in client.ended, "a peer has told an end for another peer"
        true.sendall(
            frame("TransferData", transfer, 0, payload=right) + frame("PeerEvent", told, 0)
        )
        assert client.wait(arrival) == 0 and client.wait(waits) == 0
        client.send("Marker", client.queue, own)
        assert client.wait(own) == 0
        assert client.bytes_of(client.read(mem, size)) == right, (
            "a peer has forged another peer's data"
        )
        true.close()
        forger.close()
    client.close()


def garbage_of_a_peer(node):
    """Wrong messages of another worker may end the link to it, but not the session."""
    client = Client(node).setup()
    own = client.id()
    client.send("Marker", client.queue, own)
    bad = [
        os.urandom(4096),
        wire.header(0x0109, 8) + bytes(8),
        frame("PeerEvent", 0, 0),
        frame("PeerEvent", own, 0),
        frame("TransferData", 5, 0, announce=1 << 47),
        frame("TransferData", 5, 0, announce=100) + b"cut",
    ]
    for number, said in enumerate(bad, 10):
        peer, expected, waits = admitted(node, client, number), client.id(), client.id()
        client.send("ExpectEvent", expected, number)
        client.send("Marker", client.queue, waits, waits=[expected])
        client.ping()
        peer.sendall(said)
        peer.shutdown(socket.SHUT_WR)
        assert client.wait(waits) < 0, "an event of a lost peer ends well"
        peer.close()
    # Unexpected content is accepted up to the limit of a session, and not one large piece beyond
    # it.
    before, peer = memory_of(client.worker), admitted(node, client, 100)
    peer.settimeout(3)
    with contextlib.suppress(OSError):
        peer.sendall(frame("TransferData", 70, 0, announce=2 << 30))
        for _ in range(64):
            peer.sendall(bytes(32 * MEBI))
    assert memory_of(client.worker) - before < 64 * MEBI, "a refused transfer is kept"
    with contextlib.suppress(OSError):
        for number in range(200):
            peer.sendall(frame("TransferData", 1000 + number, 0, payload=bytes(16 * MEBI)))
    grown = memory_of(client.worker) - before
    assert grown < 1300 * MEBI, f"{grown // MEBI} MiB"
    # The session itself goes on, even if it has waiting data of its own.
    mem, never, written = client.buffer(4 * MEBI), client.id(), client.id()
    client.send("ExpectEvent", never, 0)
    client.send(
        "WriteBuffer", client.queue, mem, written, 0, waits=[never], payload=bytes(4 * MEBI)
    )
    client.send("ResolveEvent", never, 0)
    assert client.wait(written) == 0
    client.close()
    peer.close()


def peers_to_anywhere(node):
    """Invitations to invalid addresses, and to hosts without a daemon. Each must be answered, and
    none may forge a line of the log."""
    listener = socket.create_server(("127.0.0.1", 0))
    client = Client(node)
    here = f"tcp:127.0.0.1:{listener.getsockname()[1]}"
    for number, addresses in enumerate(
        (
            ["tcp:x\n2026 info FORGED line"],
            ["unix:/etc/passwd", "unix:" + "a" * 5000],
            [""],
            [],
            ["tcp:[::1]:1"],
            ["x" * 60000],
        ),
        50,
    ):
        request = client.id()
        client.send("ConnectPeer", request, number, payload=wire.invitation(addresses, bytes(32)))
        client.until(lambda: request in client.replies)
        assert client.replies[request][0] == wire.NODE_LOST
    # A silent listener must not delay others.
    client.send("ConnectPeer", 9999, 90, payload=wire.invitation([here], bytes(32)))
    for _ in range(20):
        client.ping()
    assert 9999 not in client.replies, "others had to wait for a silent listener"
    client.close()
    listener.close()


def a_scan_through_the_daemon(node):
    """A client names addresses to learn which ports answer. The answer is the same for each port,
    and after some failures there is no attempt."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.2)
    here = f"tcp:127.0.0.1:{listener.getsockname()[1]}"
    client = Client(node)

    def knock(number, addresses):
        request = client.id()
        client.send("ConnectPeer", request, number, payload=wire.invitation(addresses, bytes(32)))
        client.until(lambda: request in client.replies)
        return client.replies[request]

    def is_knocked():
        try:
            listener.accept()[0].close()
        except TimeoutError:
            return False
        return True

    # The daemon connects in its client's name, and not to what only serves the machine itself.
    refused = knock(100, ["tcp:169.254.169.254:80", "tcp:0.0.0.0:22", "vsock:2:1", "ssh:localhost"])
    assert refused[0] == wire.NODE_LOST and node.control()["dials"] == 0
    threading.Thread(target=is_knocked, daemon=True).start()
    assert knock(101, [here]) == knock(102, ["tcp:127.0.0.1:1"]), "the answer shows which is open"
    for number in range(110, 130):
        knock(number, ["tcp:127.0.0.1:1"] * 16)
    knock(130, [here])
    assert not is_knocked(), "a client can try ports without end"
    why = "no node of the pool has answered at the last"
    wait_for(lambda: why in node.said(), "the log does not say why")
    # Nobody else is affected, and nothing is left.
    assert node.control()["dials"] == 0
    client.close()
    listener.close()


ATTACKS = [
    tickets,
    data_of_another_peer,
    garbage_of_a_peer,
    peers_to_anywhere,
    a_scan_through_the_daemon,
]

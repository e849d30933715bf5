"""Who has the key, and a session, and means harm; and what runs in its worker."""

import contextlib
import os
import socket
import struct
import threading
import time

import wire
from node import hangs_up, is_alive, status_of, wait_for
from strangers import refused
from wire import Client, frame, image, local_arg, mem_arg, numbers, text, value_arg

MEBI = 1 << 20
INVALID_VALUE, INVALID_MEM_OBJECT, INVALID_QUEUE, INVALID_WORK_GROUP_SIZE = -30, -38, -36, -54


def memory_of(pid):
    """What a process holds, but not what it maps of shared files."""
    return status_of(pid, "RssAnon", "RssShmem")


def ends_alone(node, client, act, *words):
    """`act` ends this client's session, with a reason that has one of `words`; another one does not notice."""
    other = Client(node).works()
    with contextlib.suppress(OSError):
        act()
    why = client.end_of()
    other.ping()
    other.close()
    wait_for(lambda: not is_alive(client.worker), 3, "the worker lives on")
    assert not words or any(word in why for word in words), f"told: {why}"
    return why


def wrong_frames(node):
    for bad, word in (
        (wire.header(0x0999, 0), "unknown opcode"),
        (wire.header(0x8000, 12) + bytes(12), "unknown opcode"),
        (wire.header(0x9000, 12) + bytes(12), "unknown opcode"),
        (wire.header(0x0109, 7) + bytes(7), "body"),
        (wire.header(0x0109, 0xFFFF) + bytes(0xFFFF), "body"),
        (wire.header(0x0109, 8, reserved=1) + bytes(8), "reserved"),
        (wire.header(0x0109, 8, payload=1) + bytes(9), "payload"),
        (frame("WriteBuffer", 1, 2, 3, 4, announce=1 << 63), "payload"),
        (frame("WriteBuffer", 1, 2, 3, 4, announce=(1 << 46) + 1), "payload"),
        (frame("CreateProgramWithSource", 1, 2, announce=(256 << 20) + 1), "payload"),
        (frame("CreateContext", 1, 0, payload=b"\xff" * 11), "CreateContext"),
        (frame("CreateContext", 1, 0, payload=b"\xff\xff\xff\xff\x0f"), "CreateContext"),
        (frame("BuildProgram", 1, 2, payload=b"\xff\xff\xff\x7f"), "BuildProgram"),
        (frame("ReleaseEvents", payload=b"1234567"), "ReleaseEvents"),
        (frame("AdmitPeer", 1, 2, payload=b"short"), "AdmitPeer"),
        (frame("CreateContext", 0, 0, payload=numbers([0])), "id"),
    ):
        for way in ("unix", "tcp"):
            client = Client(node, way)
            ends_alone(node, client, lambda: client.connection.sendall(bad), word)


def frames_cut_off(node):
    """A right frame that ends in the middle, at every byte; and one that never goes on."""
    right = frame("LaunchKernel", *range(3), 1, 0, *range(9), waits=[1, 2], payload=bytes(40))
    silent = Client(node).setup()
    silent.connection.sendall(right[:50])
    for cut in range(0, len(right), 7):
        client = Client(node, "tcp" if cut % 2 else "unix")
        client.connection.sendall(right[:cut])
        client.close()
        wait_for(lambda: not is_alive(client.worker), 3, f"cut at {cut}: the worker lives on")
    Client(node).works().close()
    silent.close()
    wait_for(lambda: not is_alive(silent.worker), 3, "the worker of a frame without end lives on")


def announced_and_not_sent(node):
    """A program of 256 MiB and 8 TiB for a buffer, announced only: no memory for them."""
    client = Client(node).setup()
    mem = client.buffer(4096)
    client.ping()
    before = memory_of(client.worker)
    client.connection.sendall(frame("CreateProgramWithSource", 50, client.context, announce=256 << 20))
    time.sleep(0.5)
    grown = memory_of(client.worker) - before
    client.close()
    assert grown < 32 * MEBI, f"{grown // MEBI} MiB"
    client = Client(node).setup()
    mem = client.buffer(4096)
    client.ping()
    before = memory_of(client.worker)
    client.connection.sendall(frame("WriteBuffer", client.queue, mem, 0, 0, announce=1 << 43))
    # It does not fit the buffer, so it is thrown away as it comes.
    for _ in range(64):
        client.connection.sendall(bytes(MEBI))
    grown = memory_of(client.worker) - before
    client.close()
    assert grown < 32 * MEBI, f"{grown // MEBI} MiB"


def source_of_256_MiB(node):
    client = Client(node).setup()
    client.send("CreateProgramWithSource", 50, client.context, payload=b" " * (256 * MEBI))
    client.send("CreateKernel", 51, 50, payload=b"nothing")
    client.ping(60)
    client.close()


def ids_unknown_reused_released(node):
    client = Client(node).setup()
    mem, one, two = client.buffer(4096), client.id(), client.id()
    client.send("WriteBuffer", client.queue, 999, one, 0, payload=b"1234")
    assert client.wait(one) == INVALID_MEM_OBJECT
    client.send("ReadBuffer", 999, mem, two, 0, 4)
    assert client.wait(two) == INVALID_QUEUE
    client.send("ReleaseMem", mem)
    client.send("ReleaseMem", mem)
    for name in ("ReleaseContext", "ReleaseProgram", "ReleaseKernel", "ReleaseMem"):
        client.send(name, 424242)
    gone = client.id()
    client.send("CopyBuffer", client.queue, mem, mem, gone, 0, 0, 16)
    assert client.wait(gone) == INVALID_MEM_OBJECT
    waits = client.id()
    client.send("Marker", client.queue, waits, waits=[123456789])
    assert client.wait(waits) < 0
    # Resolving and releasing what is not there.
    client.send("ResolveEvent", 777, 0)
    client.send("ReleaseEvents", payload=struct.pack("<3Q", 777, 778, 0))
    client.send("TellPeer", 777, 5)
    client.ping()
    # An event of a command is not the client's to end.
    mine = client.id()
    client.send("Marker", client.queue, mine)
    ends_alone(node, client, lambda: client.send("ResolveEvent", mine, 0), "id")
    for call, fields in (("CreateBuffer", lambda c: (c.queue, c.context, 1, 16)), ("CreateQueue", lambda c: (c.queue, c.context, 0, 0, 0))):
        client = Client(node).setup()
        taken = client.buffer(16)
        fields = (taken, client.context, 1, 16) if call == "CreateBuffer" else fields(client)
        ends_alone(node, client, lambda: client.send(call, *fields), "id")
    client = Client(node).setup()
    client.send("Marker", client.queue, 5000)
    ends_alone(node, client, lambda: client.send("Marker", client.queue, 5000), "id")


def offsets_and_sizes(node):
    """Ranges, rectangles and regions that lead outside, or wrap around: each an error, and the session goes on."""
    client = Client(node).setup()
    mem, big = client.buffer(4096), (1 << 64) - 1
    bad = []
    for offset, size in ((4096, 1), (0, 4097), (big, 2), (1 << 63, 1 << 63), (1, big)):
        bad.append(client.read(mem, size, offset))
        event = client.id()
        client.send("CopyBuffer", client.queue, mem, mem, event, offset, 0, size)
        bad.append(event)
    for offset in (4093, big, 1 << 63):
        event = client.id()
        client.send("WriteBuffer", client.queue, mem, event, offset, payload=b"1234")
        bad.append(event)
    for rect in (
        (0, 0, 0, 64, 65, 1, 64, 0), (0, 0, 0, big, big, big, 0, 0), (1 << 63, 0, 0, 1 << 63, 1, 1, 0, 0), (0, big, big, 1, 1, 1, big, big),
        (0, 0, 0, 2048, 2048, 1, 1, 2048), (0, 0, 0, 2048, 2048, 1, 1, 0), (0, 0, 0, 1, 1 << 40, 1 << 20, 1, 1), (0, 0, 0, 0, 1, 1, 0, 0),
    ):
        event = client.id()
        client.send("ReadBufferRect", client.queue, mem, event, *rect)
        bad.append(event)
        event = client.id()
        client.send("WriteBufferRect", client.queue, mem, event, *rect, payload=b"1234")
        bad.append(event)
    # A buffer so large that overlapping rows of it would be more pieces than memory holds.
    large = client.buffer(1 << 30)
    event = client.id()
    client.send("ReadBufferRect", client.queue, large, event, 0, 0, 0, 1 << 29, 1 << 29, 1, 1, 1 << 29)
    bad.append(event)
    for event in bad:
        assert client.wait(event) < 0, f"event {event} ended well"
    for size in (0, big, 1 << 62, 1 << 48):
        event = client.id()
        client.send("ReadBuffer", client.queue, client.buffer(size), event, 0, 1)
        assert client.wait(event) < 0
    for origin, size in ((4096, 1), (0, 4097), (big, 2), (0, 0), (1, 4096)):
        part, event = client.id(), client.id()
        client.send("CreateSubBuffer", part, mem, 1, origin, size)
        client.send("ReadBuffer", client.queue, part, event, 0, 1)
        assert client.wait(event) < 0
    for shape in (
        image(0x10B5, 0x10D2, 0x10F1, 0), image(0x10B5, 0x10D2, 0x10F1, 1 << 40, 1 << 40), image(0, 0, 0x10F1, 4, 4), image(0x10B5, 0x10D2, 0, 4, 4),
        image(0x10B5, 0x10D2, 0x10F2, 1 << 13, 1 << 13, 1 << 13), image(0x10B5, 0x10D2, 0x10F6, 16),
    ):
        picture, event = client.id(), client.id()
        client.send("CreateImage", picture, client.context, 1, 0, payload=shape)
        client.send("ReadImage", client.queue, picture, event, 0, 0, 0, 1, 1, 1)
        assert client.wait(event) < 0
    client.send("CreateSharedBuffer", client.id(), client.context, 1, 4096, 0)
    for address, size in ((0, 4096), (1, 4096), (1 << 47, 4096), (0x400000, 4096), (big - 4095, 8192)):
        request = client.id()
        client.send("AllocSvm", request, client.id(), client.context, 1, size, 0, address)
        client.until(lambda: request in client.replies)
    event = client.id()
    client.send("CopySvm", client.queue, event, 0x1000, 0x2000, 1 << 60)
    assert client.wait(event) < 0
    client.ping()
    client.close()


def launches(node):
    """Absurd sizes, argument garbage."""
    client = Client(node).setup()
    mem, kernel, big = client.buffer(4096), client.kernel("kernel void k(global int *a, int b, local int *c) {}", "k"), (1 << 64) - 1
    good = mem_arg(0, mem) + value_arg(1, bytes(4)) + local_arg(2, 64)
    for dims, has_local, sizes in (
        (0, 0, (0,) * 9), (4, 0, (0,) * 9), (big & 0xFFFFFFFF, 1, (1,) * 9), (1, 1, (0, 0, 0, 64, 1, 1, 0, 0, 0)),
        (3, 1, (0, 0, 0, 64, 64, 64, 64, 64, 64)), (1, 1, (0, 0, 0, 64, 1, 1, big, 1, 1)), (3, 1, (0, 0, 0, 8, 8, 8, 1 << 32, 1 << 32, 2)),
    ):
        event = client.id()
        client.send("LaunchKernel", client.queue, kernel, event, dims, has_local, *sizes, payload=good)
        assert client.wait(event) < 0, f"{dims} dimensions, {sizes}: ended well"
    for args in (
        mem_arg(0, 999), mem_arg(77, mem), value_arg(1, bytes(3)), value_arg(1, bytes(4096)), local_arg(0, 64), local_arg(2, 1 << 50), local_arg(2, 0),
        value_arg(0, struct.pack("<Q", 0xDEADBEEF)), struct.pack("<HBBIQ", 0, 2, 0, 8, mem), struct.pack("<HBBIQ", 0, 5, 0, 8, client.queue),
    ):
        client.launch(kernel, good)
        event = client.launch(kernel, args)
        assert client.wait(event) < 0, f"arguments {args.hex()}: ended well"
    assert client.wait(client.launch(kernel, good)) == 0
    for args in (b"\0", good[:-1], struct.pack("<HBBIQ", 0, 99, 0, 8, 1), struct.pack("<HBBI", 0, 0, 0, 0xFFFFFFFF), struct.pack("<HBBIQ", 9999, 1, 0, 8, 1)):
        hostile = Client(node).setup()
        one = hostile.kernel("kernel void k(int b) {}", "k")
        ends_alone(node, hostile, lambda: hostile.launch(one, args), "kernel arguments")
    client.close()


def programs(node):
    """Sources that are none, compilers that are asked for much."""
    client = Client(node).setup()
    for source in (b"", b"\0" * 1000, os.urandom(20000), b"kernel void k(" + b"(" * 20000, b"#include \"/dev/zero\"", b"#include \"/proc/self/environ\"",
                   b"#define A(x) x x x x\n#define B(x) A(A(A(A(x))))\n kernel void k() { B(B(;)) }"):
        program, request = client.id(), client.id()
        client.send("CreateProgramWithSource", program, client.context, payload=source)
        client.send("BuildProgram", request, program, payload=numbers([0]) + text("") + b"\0")
        try:
            client.until(lambda: request in client.replies, 60)
        except ConnectionError:
            # The compiler ran in the worker, and took it along.
            client = Client(node).setup()
    for options in ("-" * 60000, "\0", "-I /nowhere -D" + "x" * 1000, "-cl-std=CL9.9"):
        program, request = client.id(), client.id()
        client.send("CreateProgramWithSource", program, client.context, payload=b"kernel void k() {}")
        client.send("BuildProgram", request, program, payload=numbers([0]) + text(options) + b"\0")
        client.until(lambda: request in client.replies, 60)
    request = client.id()
    client.send("CreateProgramWithBinary", request, client.id(), client.context, payload=varints_binary(os.urandom(4096)))
    client.until(lambda: request in client.replies, 60)
    assert client.replies[request][0] < 0
    client.close()


def varints_binary(binary):
    return b"\1" + b"\0" + text(binary)


def more_objects_than_allowed(node):
    client = Client(node, "tcp").setup()
    batch = bytearray()
    # Samplers of a context that is not there cost the worker little.
    for number in range((1 << 20) + 10):
        batch += frame("CreateSampler", 1000 + number, 999999, payload=b"\0")
        if len(batch) > MEBI:
            with contextlib.suppress(OSError):
                client.connection.sendall(batch)
            batch.clear()
    ends_alone(node, client, lambda: client.connection.sendall(batch), "OBJECTS_PER_SESSION_MAX")


def bytes_for_commands_that_wait(node):
    """Writes behind an event that never ends: at the limit the worker stops reading."""
    client = Client(node).setup()
    mem, never = client.buffer(64 * MEBI), client.id()
    client.send("ExpectEvent", never, 0)
    client.ping()
    before, sent = memory_of(client.worker), 0
    client.connection.settimeout(3)
    block = bytes(64 * MEBI)
    with contextlib.suppress(TimeoutError):
        while sent < 4096 * MEBI:
            client.send("WriteBuffer", client.queue, mem, 0, 0, waits=[never], payload=block)
            sent += len(block)
    grown = memory_of(client.worker) - before
    assert sent < 1500 * MEBI and grown < 1300 * MEBI, f"{sent // MEBI} MiB were taken, {grown // MEBI} MiB more memory"
    client.close()
    wait_for(lambda: not is_alive(client.worker), 2, "the worker lives on")
    return f"{grown // MEBI} MiB at most"


def a_client_that_never_reads(node):
    """Answers, completions and data pile up to a limit, not beyond."""
    notes = []
    for name in ("pings", "markers", "reads"):
        client = Client(node).setup()
        mem = client.buffer(MEBI)
        client.ping()
        before, most, told = memory_of(client.worker), 0, time.monotonic()
        client.connection.settimeout(2)
        batch, number = bytearray(), 10000
        try:
            while time.monotonic() < told + 25:
                for _ in range(500):
                    number += 1
                    if name == "pings":
                        batch += frame("Ping", number)
                    elif name == "markers":
                        batch += frame("Marker", client.queue, number) + frame("ReleaseEvents", payload=struct.pack("<Q", number))
                    else:
                        batch += frame("ReadBuffer", client.queue, mem, number, 0, 60000)
                client.connection.sendall(batch)
                batch.clear()
                most = max(most, memory_of(client.worker) - before)
        except (OSError, TimeoutError):
            pass
        with contextlib.suppress(OSError):
            most = max(most, memory_of(client.worker) - before)
        client.close()
        wait_for(lambda: not is_alive(client.worker), 3, f"{name}: the worker lives on")
        assert most < 1600 * MEBI, f"{name}: {most // MEBI} MiB"
        notes.append(f"{name} {most // MEBI} MiB")
    return ", ".join(notes)


def a_client_that_sends_for_ever(node):
    """Never finishes, never waits, but reads: its worker does not grow, others are served."""
    client = Client(node).setup()
    mem = client.buffer(4096)
    kernel = client.kernel("kernel void k(global int *a) { a[0]++; }", "k")
    client.launch(kernel, mem_arg(0, mem), event=0)
    client.ping()
    stop = threading.Event()

    def read():
        with contextlib.suppress(OSError):
            while not stop.is_set():
                client.connection.recv(1 << 20)

    client.connection.settimeout(None)
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    before, most = memory_of(client.worker), 0
    launch = frame("LaunchKernel", client.queue, kernel, 0, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0)
    write = frame("WriteBuffer", client.queue, mem, 0, 0, payload=bytes(4096))
    end = time.monotonic() + 4
    while time.monotonic() < end:
        client.connection.sendall((launch + write) * 50)
        most = max(most, memory_of(client.worker) - before)
    Client(node).works().close()
    stop.set()
    client.connection.shutdown(socket.SHUT_RDWR)
    client.close()
    wait_for(lambda: not is_alive(client.worker), 3, "the worker lives on")
    assert most < 1300 * MEBI, f"{most // MEBI} MiB"
    return f"{most // MEBI} MiB"


def output_without_end(node):
    """Kernels print far more than their client reads: they wait, and nobody else does."""
    client = Client(node).setup()
    kernel = client.kernel('kernel void k(int n) { for (int i = 0; i < n; i++) printf("%s %d\\n", "01234567890123456789012345678901234567890123456789", i); }', "k")
    client.ping()
    before, most, lines, launches = memory_of(client.worker), 0, 20000, 200
    for _ in range(launches):
        client.launch(kernel, value_arg(0, struct.pack("<i", lines)), event=0)
    client.send("Flush", client.queue)
    other = Client(node)
    for _ in range(60):
        time.sleep(0.1)
        most = max(most, memory_of(client.worker) - before)
        assert other.ping() < 1, "another client has to wait"
    # Whoever reads at last, gets all of it before the end is told.
    assert client.request("Finish", client.queue, patience=60)[0] == 0
    printed = client.output.count(b"\n")
    assert printed == lines * launches, f"{printed} of {lines * launches} lines"
    client.close()
    other.close()
    wait_for(lambda: not is_alive(client.worker), 2, "the worker lives on")
    assert most < 128 * MEBI, f"{most // MEBI} MiB"
    return f"{most // MEBI} MiB at most, of {len(client.output) // MEBI} MiB printed"


def a_kernel_without_end(node):
    """Its client leaves: the worker is gone within a second."""
    for way in ("unix", "tcp"):
        client = Client(node, way).setup()
        kernel = client.kernel("kernel void k(global volatile int *a) { while (a[0] == 0) ; }", "k")
        client.launch(kernel, mem_arg(0, client.buffer(64)))
        client.send("Flush", client.queue)
        time.sleep(0.3)
        other = Client(node).works()
        client.close()
        since = time.monotonic()
        wait_for(lambda: not is_alive(client.worker), 1, "the worker lives on")
        took = time.monotonic() - since
        other.works().close()
    return f"gone after {took * 1000:.0f} ms"


def a_kernel_that_crashes(node):
    """Only its session ends; the daemon says how."""
    for body in ("*(global volatile int *)(size_t)(a[0] + 8) = 1;", "for (size_t i = 0; ; i += 4096) a[i] = 1;"):
        client = Client(node).setup()
        kernel = client.kernel("kernel void k(global volatile int *a) { " + body + " }", "k")
        other = Client(node).works()
        client.launch(kernel, mem_arg(0, client.buffer(64)))
        client.send("Flush", client.queue)
        client.end_of(5)
        wait_for(lambda: f"worker={client.worker}" in node.said() and not is_alive(client.worker), 3, "the worker's end is not told")
        line = [line for line in node.said().splitlines() if f"worker={client.worker}" in line][-1]
        assert "unexpectedly" in line and "signal" in line, line
        other.works().close()


def tickets(node):
    """Unknown, used twice, another's, and more of them than allowed."""
    for way in ("unix", "tcp"):
        key = node.key if way == "tcp" else None
        refused(lambda: wire.enter(node.address(way), key, wire.PEER, os.urandom(32)), wire.WRONG_TICKET)
        refused(lambda: wire.enter(node.address(way), key, wire.PEER, bytes(32)), wire.WRONG_TICKET)
    client, ticket = Client(node).setup(), os.urandom(32)
    assert client.request("AdmitPeer", 5, payload=ticket)[0] == 0
    refused(lambda: wire.enter(node.address("tcp"), os.urandom(32), wire.PEER, ticket, check=False), wire.WRONG_KEY)
    # Another session can not take it over.
    thief, request = Client(node), 77
    thief.send("AdmitPeer", request, 5, payload=ticket)
    thief.ping()
    time.sleep(0.2)
    peer = wire.enter(node.address("tcp"), node.key, wire.PEER, ticket)
    refused(lambda: wire.enter(node.address("tcp"), node.key, wire.PEER, ticket), wire.WRONG_TICKET)
    # It has come to the first one: an event that it tells is known there.
    event, waits = client.id(), client.id()
    client.send("ExpectEvent", event, 5)
    client.send("Marker", client.queue, waits, waits=[event])
    client.ping()
    assert waits not in client.ended
    peer.sendall(frame("PeerEvent", event, 0))
    assert client.wait(waits, 5) == 0
    thief.close()
    # One that was not used goes with its session.
    lost = os.urandom(32)
    assert client.request("AdmitPeer", 6, payload=lost)[0] == 0
    client.close()
    wait_for(lambda: not is_alive(client.worker), 3, "the worker lives on")
    wait_for(lambda: not any(one["worker"] == client.worker for one in node.control()["sessions"]), 3, "the session is still listed")
    refused(lambda: wire.enter(node.address("tcp"), node.key, wire.PEER, lost), wire.WRONG_TICKET)
    many = Client(node)
    batch = b"".join(frame("AdmitPeer", 1000 + n, 10 + n, payload=os.urandom(32)) for n in range(1100))
    ends_alone(node, many, lambda: many.connection.sendall(batch), "PEERS_MAX")


def garbage_of_a_peer(node):
    """What another worker says wrong costs the link to it, not the session."""
    def admitted(client, number):
        ticket = os.urandom(32)
        assert client.request("AdmitPeer", number, payload=ticket)[0] == 0
        return wire.enter(node.address("tcp"), node.key, wire.PEER, ticket)

    client = Client(node).setup()
    own = client.id()
    client.send("Marker", client.queue, own)
    bad = [os.urandom(4096), wire.header(0x0109, 8) + bytes(8), frame("PeerEvent", 0, 0), frame("PeerEvent", own, 0),
           frame("TransferData", 5, 0, announce=1 << 47), frame("TransferData", 5, 0, announce=100) + b"cut"]
    for number, said in enumerate(bad, 10):
        peer, expected, waits = admitted(client, number), client.id(), client.id()
        client.send("ExpectEvent", expected, number)
        client.send("Marker", client.queue, waits, waits=[expected])
        client.ping()
        peer.sendall(said)
        peer.shutdown(socket.SHUT_WR)
        assert client.wait(waits, 5) < 0, "an event of a lost peer ends well"
        peer.close()
    # Content that nobody asked for: taken up to the limit of a session, and not one large piece beyond it.
    before, peer = memory_of(client.worker), admitted(client, 100)
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
    # The session itself goes on, also with bytes of its own that have to wait.
    mem, never, written = client.buffer(4 * MEBI), client.id(), client.id()
    client.send("ExpectEvent", never, 0)
    client.send("WriteBuffer", client.queue, mem, written, 0, waits=[never], payload=bytes(4 * MEBI))
    client.send("ResolveEvent", never, 0)
    assert client.wait(written, 5) == 0
    client.close()
    peer.close()


def peers_to_anywhere(node):
    """Invitations to what is no daemon, with addresses that are none: answered, and not one forged line of log."""
    listener = socket.create_server(("127.0.0.1", 0))
    client = Client(node)
    here = f"tcp:127.0.0.1:{listener.getsockname()[1]}"
    for number, addresses in enumerate((["tcp:x\n2026 info FORGED line"], ["unix:/etc/passwd", "unix:" + "a" * 5000], [""], [], ["tcp:[::1]:1"], ["x" * 60000]), 50):
        request = client.id()
        client.send("ConnectPeer", request, number, payload=wire.invitation(addresses, bytes(32)))
        client.until(lambda: request in client.replies, 10)
        assert client.replies[request][0] == wire.NODE_LOST
    # A listener that is silent holds nobody up.
    client.send("ConnectPeer", 9999, 90, payload=wire.invitation([here], bytes(32)))
    for _ in range(20):
        assert client.ping() < 0.5
    client.close()
    listener.close()


def sessions_over_the_limit(node):
    """Three hundred clients with the key at the same moment: all are answered in time, those too many at once."""
    node.settle()
    verdicts, lock = {}, threading.Lock()
    connections = []

    def come():
        started = time.monotonic()
        try:
            connection = wire.enter(node.address("unix"))
            verdict = 0
            with lock:
                connections.append(connection)
        except Refused_or_gone as refusal:
            verdict = getattr(refusal, "verdict", "gone")
        took = time.monotonic() - started
        with lock:
            verdicts.setdefault(verdict, []).append(took)

    threads = [threading.Thread(target=come) for _ in range(320)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a client is not answered"
    for connection in connections:
        connection.close()
    assert max(map(max, verdicts.values())) < 8, f"slowest: {({v: round(max(t), 1) for v, t in verdicts.items()})}"
    assert verdicts.get(wire.FULL), f"none was too many: {({v: len(t) for v, t in verdicts.items()})}"
    wait_for(lambda: not node.control()["sessions"] and not node.control()["waiting_clients"], 30, "sessions are left")
    return ", ".join(f"{len(times)} x verdict {verdict}" for verdict, times in sorted(verdicts.items(), key=str))


Refused_or_gone = (wire.Refused, OSError)


def authenticated_and_gone(node):
    """Says the right hello and leaves, or stays and says nothing of rings."""
    node.settle()
    for turn in range(30):
        connection = wire.enter(node.address("unix" if turn % 2 else "tcp"), None if turn % 2 else node.key)
        connection.close()
    mute = wire.dial(node.address("unix"))
    wire.enter(node.address("unix"), connection=mute, hello=wire.hello_bytes(features=7))
    odd = wire.dial(node.address("unix"))
    wire.enter(node.address("unix"), connection=odd, hello=wire.hello_bytes(features=7))
    odd.sendall(b"RINGS  1")
    assert hangs_up(odd, 3) is not None, "rings without rings"
    for fds in ([0], [0, 0, 0, 0], rings(seal=False), rings(size=4096), rings(size=3 << 20), rings(size=1 << 40)):
        bad = wire.dial(node.address("unix"))
        wire.enter(node.address("unix"), connection=bad, hello=wire.hello_bytes(features=7))
        size = struct.unpack("<I", wire.exactly(bad, 4))[0]
        wire.exactly(bad, size)
        socket.send_fds(bad, [b"RINGS  1"], fds)
        assert hangs_up(bad, 4) is not None, "memory that is no ring was taken"
        for fd in fds:
            if fd > 2:
                os.close(fd)
    assert hangs_up(mute, 8) is not None, "a client that offers no rings holds its worker for ever"


def rings(size=(4 << 20) + 4096, seal=True):
    import fcntl
    fds = []
    for _ in range(2):
        fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        if seal:
            fcntl.fcntl(fd, 1033, 2 | 4)
        fds.append(fd)
    return [*fds, *(end.detach() for end in socket.socketpair()[:1])]


def counts_that_can_not_be(node):
    """A client with rings whose counts lie: its session ends, with no byte out of place."""
    import mmap
    for head, tail in ((0, 1 << 63), (0, (4 << 20) + 1), (5, 0), (1 << 40, 0), (0, 100)):
        client = wire.dial(node.address("unix"))
        wire.enter(node.address("unix"), connection=client, hello=wire.hello_bytes(features=1))
        size = struct.unpack("<I", wire.exactly(client, 4))[0]
        wire.exactly(client, size)
        fds = rings()
        socket.send_fds(client, [b"RINGS  1"], fds)
        to_worker, to_client = (mmap.mmap(fd, (4 << 20) + 4096) for fd in fds[:2])
        # 100 bytes of garbage in the last case: an opcode that is none.
        to_worker[4096:4196] = b"\xee" * 100
        to_client[0:8] = struct.pack("<Q", head)
        to_worker[128:136] = struct.pack("<Q", tail)
        if head:
            # A right ping, whose answer meets the lie.
            to_worker[4096:4120] = frame("Ping", 1)
            to_worker[128:136] = struct.pack("<Q", 24)
        with contextlib.suppress(OSError):
            client.sendall(b"\1")
        ended = hangs_up(client, 3)
        for mapping in (to_worker, to_client):
            mapping.close()
        for fd in fds:
            os.close(fd)
        client.close()
        assert ended is not None or head, f"head {head}, tail {tail}: goes on"


ATTACKS = [
    wrong_frames, frames_cut_off, announced_and_not_sent, source_of_256_MiB, ids_unknown_reused_released, offsets_and_sizes, launches, programs,
    more_objects_than_allowed, bytes_for_commands_that_wait, a_client_that_never_reads, a_client_that_sends_for_ever, output_without_end,
    a_kernel_without_end, a_kernel_that_crashes, tickets, garbage_of_a_peer, peers_to_anywhere, authenticated_and_gone, counts_that_can_not_be,
    sessions_over_the_limit,
]

"""Clients with the key and a session that make malicious calls."""

import contextlib
import os
import struct
import time

import wire
from patience import wait_for
from processes import is_alive, status_of
from wire import Client, frame, image, local_arg, mem_arg, numbers, text, value_arg

MEBI = 1 << 20
INVALID_VALUE, INVALID_MEM_OBJECT, INVALID_QUEUE, INVALID_WORK_GROUP_SIZE = -30, -38, -36, -54


def memory_of(pid):
    """Returns the memory of a process without its mapped shared files."""
    return status_of(pid, "RssAnon", "RssShmem")


def ends_alone(node, client, act, *words):
    """Checks that `act` ends this client's session, with a reason that contains one of `words`, and
    that another client does not notice."""
    other = Client(node).works()
    with contextlib.suppress(OSError):
        act()
    why = client.end_of()
    other.ping()
    other.close()
    wait_for(lambda: not is_alive(client.worker), "the worker lives on")
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
    """A correct frame cut off at every byte, and one whose rest never comes."""
    right = frame("LaunchKernel", *range(3), 1, 0, *range(9), waits=[1, 2], payload=bytes(40))
    silent = Client(node).setup()
    silent.connection.sendall(right[:50])
    for cut in range(0, len(right), 7):
        client = Client(node, "tcp" if cut % 2 else "unix")
        client.connection.sendall(right[:cut])
        client.close()
        wait_for(lambda: not is_alive(client.worker), f"cut at {cut}: the worker lives on")
    Client(node).works().close()
    silent.close()
    wait_for(lambda: not is_alive(silent.worker), "the worker of a frame without end lives on")


def announced_and_not_sent(node):
    """A program of 256 MiB and 8 TiB for a buffer, only announced. The worker must not allocate
    memory for them."""
    client = Client(node).setup()
    mem = client.buffer(4096)
    client.ping()
    before = memory_of(client.worker)
    client.connection.sendall(
        frame("CreateProgramWithSource", 50, client.context, announce=256 << 20)
    )
    time.sleep(0.5)
    grown = memory_of(client.worker) - before
    client.close()
    assert grown < 32 * MEBI, f"{grown // MEBI} MiB"
    client = Client(node).setup()
    mem = client.buffer(4096)
    client.ping()
    before = memory_of(client.worker)
    client.connection.sendall(frame("WriteBuffer", client.queue, mem, 0, 0, announce=1 << 43))
    # The data does not fit the buffer, so the worker discards it on arrival.
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
    # Resolves and releases events that do not exist.
    client.send("ResolveEvent", 777, 0)
    client.send("ReleaseEvents", payload=struct.pack("<3Q", 777, 778, 0))
    client.send("TellPeer", 777, 5)
    client.ping()
    # The client cannot end the event of a command.
    mine = client.id()
    client.send("Marker", client.queue, mine)
    ends_alone(node, client, lambda: client.send("ResolveEvent", mine, 0), "id")
    for call, fields in (
        ("CreateBuffer", lambda c: (c.queue, c.context, 1, 16)),
        ("CreateQueue", lambda c: (c.queue, c.context, 0, 0, 0, 0)),
    ):
        client = Client(node).setup()
        taken = client.buffer(16)
        fields = (taken, client.context, 1, 16) if call == "CreateBuffer" else fields(client)
        ends_alone(node, client, lambda: client.send(call, *fields), "id")
    client = Client(node).setup()
    client.send("Marker", client.queue, 5000)
    ends_alone(node, client, lambda: client.send("Marker", client.queue, 5000), "id")


def offsets_and_sizes(node):
    """Ranges, rectangles and regions that are out of bounds or wrap around. Each must give an
    error, and the session must go on."""
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
        (0, 0, 0, 64, 65, 1, 64, 0),
        (0, 0, 0, big, big, big, 0, 0),
        (1 << 63, 0, 0, 1 << 63, 1, 1, 0, 0),
        (0, big, big, 1, 1, 1, big, big),
        (0, 0, 0, 2048, 2048, 1, 1, 2048),
        (0, 0, 0, 2048, 2048, 1, 1, 0),
        (0, 0, 0, 1, 1 << 40, 1 << 20, 1, 1),
        (0, 0, 0, 0, 1, 1, 0, 0),
    ):
        event = client.id()
        client.send("ReadBufferRect", client.queue, mem, event, *rect)
        bad.append(event)
        event = client.id()
        client.send("WriteBufferRect", client.queue, mem, event, *rect, payload=b"1234")
        bad.append(event)
    # The buffer is so large that its overlapping rows would be more pieces than fit into memory.
    large = client.buffer(1 << 30)
    event = client.id()
    client.send(
        "ReadBufferRect", client.queue, large, event, 0, 0, 0, 1 << 29, 1 << 29, 1, 1, 1 << 29
    )
    bad.append(event)
    for event in bad:
        assert client.wait(event) < 0, f"event {event} ended well"
    bad_objects(client, mem, big)
    client.ping()
    client.close()


def bad_objects(client, mem, big):
    """Buffers, parts of buffers, images and addresses that cannot be. The commands that use them
    must fail."""
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
        image(0x10B5, 0x10D2, 0x10F1, 0),
        image(0x10B5, 0x10D2, 0x10F1, 1 << 40, 1 << 40),
        image(0, 0, 0x10F1, 4, 4),
        image(0x10B5, 0x10D2, 0, 4, 4),
        image(0x10B5, 0x10D2, 0x10F2, 1 << 13, 1 << 13, 1 << 13),
        image(0x10B5, 0x10D2, 0x10F6, 16),
    ):
        picture, event = client.id(), client.id()
        client.send("CreateImage", picture, client.context, 1, 0, payload=shape)
        client.send("ReadImage", client.queue, picture, event, 0, 0, 0, 1, 1, 1)
        assert client.wait(event) < 0
    client.send("CreateSharedBuffer", client.id(), client.context, 1, 4096, 0)
    for address, size in (
        (0, 4096),
        (1, 4096),
        (1 << 47, 4096),
        (0x400000, 4096),
        (big - 4095, 8192),
    ):
        request = client.id()
        client.send("AllocSvm", request, client.id(), client.context, 1, size, 0, address)
        client.until(lambda: request in client.replies)
    event = client.id()
    client.send("CopySvm", client.queue, event, 0x1000, 0x2000, 1 << 60)
    assert client.wait(event) < 0


def launches(node):
    """Absurd sizes and invalid arguments."""
    client = Client(node).setup()
    mem, kernel, big = (
        client.buffer(4096),
        client.kernel("kernel void k(global int *a, int b, local int *c) {}", "k"),
        (1 << 64) - 1,
    )
    good = mem_arg(0, mem) + value_arg(1, bytes(4)) + local_arg(2, 64)
    for dims, has_local, sizes in (
        (0, 0, (0,) * 9),
        (4, 0, (0,) * 9),
        (big & 0xFFFFFFFF, 1, (1,) * 9),
        (1, 1, (0, 0, 0, 64, 1, 1, 0, 0, 0)),
        (3, 1, (0, 0, 0, 64, 64, 64, 64, 64, 64)),
        (1, 1, (0, 0, 0, 64, 1, 1, big, 1, 1)),
        (3, 1, (0, 0, 0, 8, 8, 8, 1 << 32, 1 << 32, 2)),
    ):
        event = client.id()
        client.send(
            "LaunchKernel", client.queue, kernel, event, dims, has_local, *sizes, payload=good
        )
        assert client.wait(event) < 0, f"{dims} dimensions, {sizes}: ended well"
    for args in (
        mem_arg(0, 999),
        mem_arg(77, mem),
        value_arg(1, bytes(3)),
        value_arg(1, bytes(4096)),
        local_arg(0, 64),
        local_arg(2, 1 << 50),
        local_arg(2, 0),
        value_arg(0, struct.pack("<Q", 0xDEADBEEF)),
        struct.pack("<HBBIQ", 0, 2, 0, 8, mem),
        struct.pack("<HBBIQ", 0, 5, 0, 8, client.queue),
    ):
        client.launch(kernel, good)
        event = client.launch(kernel, args)
        assert client.wait(event) < 0, f"arguments {args.hex()}: ended well"
    assert client.wait(client.launch(kernel, good)) == 0
    for args in (
        b"\0",
        good[:-1],
        struct.pack("<HBBIQ", 0, 99, 0, 8, 1),
        struct.pack("<HBBI", 0, 0, 0, 0xFFFFFFFF),
        struct.pack("<HBBIQ", 9999, 1, 0, 8, 1),
    ):
        hostile = Client(node).setup()
        one = hostile.kernel("kernel void k(int b) {}", "k")
        ends_alone(node, hostile, lambda: hostile.launch(one, args), "kernel arguments")
    client.close()


def programs(node):
    """Invalid sources, and sources that take much of the compiler."""
    client = Client(node).setup()
    for source in (
        b"",
        b"\0" * 1000,
        os.urandom(20000),
        b"kernel void k(" + b"(" * 20000,
        b'#include "/dev/zero"',
        b'#include "/proc/self/environ"',
        b"#define A(x) x x x x\n#define B(x) A(A(A(A(x))))\n kernel void k() { B(B(;)) }",
    ):
        program, request = client.id(), client.id()
        client.send("CreateProgramWithSource", program, client.context, payload=source)
        client.send(
            "BuildProgram", request, program, payload=numbers([0]) + b"\1" + text("") + b"\0\0"
        )
        try:
            client.until(lambda: request in client.replies)
        except ConnectionError:
            # The compiler crashed in the worker, which ended with it.
            client = Client(node).setup()
    for options in ("-" * 60000, "\0", "-I /nowhere -D" + "x" * 1000, "-cl-std=CL9.9"):
        program, request = client.id(), client.id()
        client.send(
            "CreateProgramWithSource", program, client.context, payload=b"kernel void k() {}"
        )
        client.send(
            "BuildProgram", request, program, payload=numbers([0]) + b"\1" + text(options) + b"\0\0"
        )
        client.until(lambda: request in client.replies)
    request = client.id()
    client.send(
        "CreateProgramWithBinary",
        request,
        client.id(),
        client.context,
        payload=varints_binary(os.urandom(4096)),
    )
    client.until(lambda: request in client.replies)
    assert client.replies[request][0] < 0
    client.close()


def varints_binary(binary):
    return b"\1" + b"\0" + text(binary)


ATTACKS = [
    wrong_frames,
    frames_cut_off,
    announced_and_not_sent,
    source_of_256_MiB,
    ids_unknown_reused_released,
    offsets_and_sizes,
    launches,
    programs,
]

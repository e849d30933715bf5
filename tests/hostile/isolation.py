"""No client may read memory that another client has used."""

import contextlib
import os
import struct

from patience import wait_for
from processes import is_alive
from wire import Client, image, mem_arg

MEBI = 1 << 20
SIZE = 64 * MEBI
PATTERN = b"\xa5" * MEBI
# An address that is free in every worker.
SVM = 0x1000_0000_0000
RGBA, FLOAT, UNORM8, R = 0x10B5, 0x10DE, 0x10D2, 0x10B0
IMAGE2D, IMAGE3D, IMAGE2D_ARRAY, IMAGE1D = 0x10F1, 0x10F2, 0x10F3, 0x10F4
IMAGES = [
    (image(RGBA, FLOAT, IMAGE2D, 1024, 1024), (1024, 1024, 1), 16 * MEBI),
    (image(RGBA, UNORM8, IMAGE3D, 64, 64, 64), (64, 64, 64), MEBI),
    (image(R, FLOAT, IMAGE2D_ARRAY, 256, 256, 1, 16), (256, 256, 16), 4 * MEBI),
    (image(RGBA, FLOAT, IMAGE1D, 4096), (4096, 1, 1), 65536),
]


def fill(client):
    """Leaves a pattern in every kind of memory."""
    for _ in range(3):
        mem = client.buffer(SIZE)
        client.send("WriteBuffer", client.queue, mem, 0, 0, payload=PATTERN * (SIZE // MEBI))
    # The bytes of waiting commands are in the worker's own memory.
    never = client.id()
    client.send("ExpectEvent", never, 0)
    staged = client.buffer(MEBI)
    client.send("WriteBuffer", client.queue, staged, 0, 0, waits=[never], payload=PATTERN)
    client.send("ResolveEvent", never, 0)
    for shape, region, size in IMAGES:
        picture, event = client.id(), client.id()
        client.send("CreateImage", picture, client.context, 1, 0, payload=shape)
        client.connection.sendall(
            write_image(
                client.queue, picture, event, region, PATTERN * (size // MEBI) or PATTERN[:size]
            )
        )
        assert client.wait(event) == 0
    assert alloc_svm(client, client.id())[0] == 0
    kernel = client.kernel(
        "kernel void k(global uchar *a) { local uchar l[16384]; for (int i = 0; i < 16384; i++) l[i] = 0xa5; a[0] = l[a[1]]; }",
        "k",
    )
    event = client.launch(kernel, mem_arg(0, client.buffer(64)))
    assert client.wait(event) == 0


def alloc_svm(client, mem):
    client.svm = mem
    request = client.id()
    client.send("AllocSvm", request, mem, client.context, 1, SIZE, 0, SVM)
    client.until(lambda: request in client.replies)
    return client.replies.pop(request)


def write_image(queue, mem, event, region, content):
    import wire

    body = struct.pack("<QQQ6Q", queue, mem, event, 0, 0, 0, *region)
    return wire.header(0x0208, len(body), 0, 0, len(content)) + body + content


def must_be_zero(what, content, size):
    assert len(content) == size, f"{what}: {len(content)} bytes"
    assert not any(content), f"{what}: content of somebody else"


def search(client):
    """Looks for data of others in every kind of new memory."""
    for number in range(3):
        mem = client.buffer(SIZE)
        must_be_zero(f"buffer {number}", client.bytes_of(client.read(mem, SIZE)), SIZE)
        part = client.id()
        client.send("CreateSubBuffer", part, mem, 1, 4096, 8192)
        must_be_zero("a sub-buffer", client.bytes_of(client.read(part, 8192)), 8192)
    for size in (1, 100, 4096, 65536, 3 * MEBI + 5):
        for _ in range(8):
            must_be_zero(
                "a small buffer", client.bytes_of(client.read(client.buffer(size), size)), size
            )
    for shape, region, size in IMAGES:
        picture, event = client.id(), client.id()
        client.send("CreateImage", picture, client.context, 1, 0, payload=shape)
        client.send("ReadImage", client.queue, picture, event, 0, 0, 0, *region)
        must_be_zero(f"an image {region}", client.bytes_of(event), size)
    assert alloc_svm(client, client.id())[0] == 0
    must_be_zero("shared virtual memory", client.bytes_of(client.read(client.svm, SIZE)), SIZE)


def freed_memory_is_not_another_clients(node):
    for way in ("unix", "tcp"):
        first = Client(node, way).setup()
        fill(first)
        svm = first.id()
        first.send("WriteBuffer", first.queue, first.svm, svm, 0, payload=PATTERN * (SIZE // MEBI))
        assert first.wait(svm) == 0
        if way == "tcp":
            # Also while the first client lives.
            other = Client(node).setup()
            search(other)
            other.close()
        first.close()
        wait_for(lambda: not is_alive(first.worker), "the worker lives on")
        other = Client(node, way).setup()
        search(other)
        other.close()


def freed_memory_of_the_same_client(node):
    """New memory must be zero within a session, too, as the protocol promises for buffers."""
    client = Client(node).setup()
    for _ in range(3):
        mem = client.buffer(SIZE)
        client.send("WriteBuffer", client.queue, mem, 0, 0, payload=PATTERN * (SIZE // MEBI))
        client.ping()
        client.send("ReleaseMem", mem)
        must_be_zero("a buffer", client.bytes_of(client.read(client.buffer(SIZE), SIZE)), SIZE)
    client.close()


def nothing_of_a_session_outlives_it(node):
    """After a session, its memory must not be mapped or open in the daemon or in workers.
    memfd:penstock-usage, where workers count, may only be that of living ones."""
    first = Client(node).setup()
    fill(first)
    first.close()
    wait_for(lambda: not is_alive(first.worker), "the worker lives on")
    node.settle()
    for pid in [node.daemon.pid, *node.workers()]:
        living = len(node.workers()) if pid == node.daemon.pid else 1
        # Processes and descriptors may disappear during the search.
        names, maps = [], ""
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    names.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
            with open(f"/proc/{pid}/maps") as file:
                maps = file.read()
        counted = [name for name in names if "memfd:penstock-usage" in name]
        assert len(counted) <= living, (
            f"process {pid} has what {len(counted)} workers count, of {living}"
        )
        names = [name for name in names if name not in counted]
        maps = "\n".join(line for line in maps.splitlines() if "memfd:penstock-usage" not in line)
        assert not any("memfd:penstock" in name for name in names), f"process {pid} has {names}"
        assert "memfd:penstock" not in maps, f"process {pid} maps memory of a link"


ATTACKS = [
    freed_memory_is_not_another_clients,
    freed_memory_of_the_same_client,
    nothing_of_a_session_outlives_it,
]

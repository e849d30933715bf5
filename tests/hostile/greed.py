"""Clients, and kernels in their workers, that use all they can get: objects, memory, time,
sessions."""

import contextlib
import socket
import struct
import threading
import time

import wire
from clients import MEBI, ends_alone, memory_of
from patience import PATIENCE_S, lane, wait_for
from processes import cpu_of, is_alive
from wire import Client, frame, mem_arg, value_arg


def more_objects_than_allowed(node):
    client = Client(node, "tcp").setup()
    batch = bytearray()
    # Samplers of a context that does not exist cost the worker little.
    for number in range((1 << 20) + 10):
        batch += frame("CreateSampler", 1000 + number, 999999, payload=b"\0")
        if len(batch) > MEBI:
            with contextlib.suppress(OSError):
                client.connection.sendall(batch)
            batch.clear()
    ends_alone(node, client, lambda: client.connection.sendall(batch), "OBJECTS_PER_SESSION_MAX")


@lane("all")
def bytes_for_commands_that_wait(node):
    """Writes behind a user event that is never set. At GATED_BYTES_MAX (4 GiB) the worker must stop
    reading."""
    client = Client(node).setup()
    mem, never = client.buffer(64 * MEBI), client.id()
    client.send("ExpectEvent", never, 0)
    client.ping()
    before, sent = memory_of(client.worker), 0
    # At 1 GiB the worker waits for two seconds before it reads more.
    client.connection.settimeout(8)
    block = bytes(64 * MEBI)
    with contextlib.suppress(TimeoutError):
        while sent < 6144 * MEBI:
            client.send("WriteBuffer", client.queue, mem, 0, 0, waits=[never], payload=block)
            sent += len(block)
    grown = memory_of(client.worker) - before
    assert sent < 4300 * MEBI and grown < 4300 * MEBI, (
        f"{sent // MEBI} MiB were taken, {grown // MEBI} MiB more memory"
    )
    client.close()
    wait_for(lambda: not is_alive(client.worker), "the worker lives on")
    return f"{grown // MEBI} MiB at most"


@lane("all")
def a_client_that_never_reads(node):
    """Answers, completions and data must accumulate only up to a limit."""
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
                        batch += frame("Marker", client.queue, number) + frame(
                            "ReleaseEvents", payload=struct.pack("<Q", number)
                        )
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
        wait_for(lambda: not is_alive(client.worker), f"{name}: the worker lives on")
        assert most < 1600 * MEBI, f"{name}: {most // MEBI} MiB"
        notes.append(f"{name} {most // MEBI} MiB")
    return ", ".join(notes)


@lane("all")
def a_client_that_sends_for_ever(node):
    """A client that sends without finish or wait, but reads. Its worker must not grow, and others
    must be served."""
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
    wait_for(lambda: not is_alive(client.worker), "the worker lives on")
    assert most < 1300 * MEBI, f"{most // MEBI} MiB"
    return f"{most // MEBI} MiB"


@lane("all")
def output_without_end(node):
    """Kernels print far more than their client reads. Only these kernels may wait."""
    client = Client(node).setup()
    kernel = client.kernel(
        'kernel void k(int n) { for (int i = 0; i < n; i++) printf("%s %d\\n", "01234567890123456789012345678901234567890123456789", i); }',
        "k",
    )
    client.ping()
    before, most, lines, launches = memory_of(client.worker), 0, 20000, 200
    for _ in range(launches):
        client.launch(kernel, value_arg(0, struct.pack("<i", lines)), event=0)
    client.send("Flush", client.queue)
    other = Client(node)
    for _ in range(60):
        most = max(most, memory_of(client.worker) - before)
        other.ping()
    # The kernels have not printed all, because nobody has read it: only they wait.
    assert client.output.count(b"\n") < lines * launches
    # A client that finally reads gets all output before the answer to its finish.
    assert client.request("Finish", client.queue, patience=5 * PATIENCE_S)[0] == 0
    printed = client.output.count(b"\n")
    assert printed == lines * launches, f"{printed} of {lines * launches} lines"
    client.close()
    other.close()
    wait_for(lambda: not is_alive(client.worker), "the worker lives on")
    assert most < 128 * MEBI, f"{most // MEBI} MiB"
    return f"{most // MEBI} MiB at most, of {len(client.output) // MEBI} MiB printed"


def a_kernel_without_end(node):
    """The client of an endless kernel leaves. Its worker must end."""
    for way in ("unix", "tcp"):
        client = Client(node, way).setup()
        kernel = client.kernel("kernel void k(global volatile int *a) { while (a[0] == 0) ; }", "k")
        client.launch(kernel, mem_arg(0, client.buffer(64)))
        client.send("Flush", client.queue)
        client.ping()
        before = cpu_of(client.worker)
        wait_for(lambda: cpu_of(client.worker) > before + 0.1, "the kernel does not run")
        other = Client(node).works()
        client.close()
        since = time.monotonic()
        wait_for(lambda: not is_alive(client.worker), "the worker lives on")
        took = time.monotonic() - since
        other.works().close()
    return f"gone after {took * 1000:.0f} ms"


def a_kernel_that_crashes(node):
    """Only the session of the crashed kernel may end, and the daemon must say how."""
    for body in (
        "*(global volatile int *)(size_t)(a[0] + 8) = 1;",
        "for (size_t i = 0; ; i += 4096) a[i] = 1;",
    ):
        client = Client(node).setup()
        kernel = client.kernel("kernel void k(global volatile int *a) { " + body + " }", "k")
        other = Client(node).works()
        client.launch(kernel, mem_arg(0, client.buffer(64)))
        client.send("Flush", client.queue)
        client.end_of()
        words = (f"worker={client.worker}", "unexpectedly", "signal")
        wait_for(
            lambda: any(all(word in line for word in words) for line in node.said().splitlines()),
            "the worker's end is not told",
        )
        assert not is_alive(client.worker)
        other.works().close()


def sessions_over_the_limit(node):
    """Clients with the key connect until the sessions and the line are full. Each must be
    answered, although nobody leaves."""
    node.settle()
    limits = node.control()["limits"]
    most = limits["sessions"] + limits["clients_in_line"]
    connections, slowest, verdict = [], 0, None
    while verdict != wire.FULL:
        assert len(connections) <= most, f"{len(connections)} clients, and none was too many"
        started = time.monotonic()
        connection = wire.dial(node.address("unix"))
        verdict = wire.greet(connection)
        slowest = max(slowest, time.monotonic() - started)
        assert verdict in (wire.WELCOME, wire.IN_LINE, wire.FULL), f"verdict {verdict}"
        connections.append(connection)
    served = len(node.control()["sessions"])
    assert node.control()["waiting_clients"] <= limits["clients_in_line"]
    # All of them leave, both those in line and those in sessions. The line must then be free for
    # others.
    for connection in connections:
        connection.close()
    wait_for(
        lambda: not node.control()["sessions"] and not node.control()["waiting_clients"],
        "sessions are left",
    )
    return f"{len(connections)} clients, {served} with a session; the slowest answer took {slowest * 1000:.0f} ms"


def a_place_in_line_is_kept(node):
    """Clients must be served in the order of their arrival, even if others in line leave or do not
    read."""
    node.settle()
    order, lock = [], threading.Lock()
    clients = [wire.dial(node.address("unix")) for _ in range(24)]
    first = [wire.greet(client) for client in clients]

    def wait(number):
        client = clients[number]
        verdict = first[number]
        while verdict == wire.IN_LINE:
            verdict = wire.final_of(client)
        with lock:
            order.append((time.monotonic(), number))
        assert verdict == wire.WELCOME, f"client {number}: verdict {verdict}"

    for number in range(1, 24, 3):
        clients[number].close()
    threads = [
        threading.Thread(target=wait, args=(number,)) for number in range(24) if number % 3 == 0
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a client is not served"
    for number in range(24):
        clients[number].close()
    # The test's own threads may swap two clients that are served at the same moment.
    served = [number for _, number in sorted(order)]
    late = [(one, other) for one, other in zip(served, served[1:]) if one > other + 3]
    assert not late, f"served in the order {served}"


ATTACKS = [
    more_objects_than_allowed,
    bytes_for_commands_that_wait,
    a_client_that_never_reads,
    a_client_that_sends_for_ever,
    output_without_end,
    a_kernel_without_end,
    a_kernel_that_crashes,
    sessions_over_the_limit,
    a_place_in_line_is_kept,
]

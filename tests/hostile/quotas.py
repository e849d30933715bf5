"""Clients that hold commands and wait lists in the worker, where no byte of theirs is stored."""

import contextlib
import itertools
import socket
import time

from clients import MEBI, memory_of
from patience import PATIENCE_S, lane, wait_for
from processes import is_alive
from wire import Client, frame

# A worker lets four times COMMANDS_IN_FLIGHT_MAX through, of some 1 KiB each. What a command takes
# in a driver is an estimate.
GROWTH_MAX = 512 * MEBI


def blocks_at(client, batches, bytes_max):
    """Sends batches until the worker reads no further. Returns the number of bytes that it took,
    and how much it grew."""
    client.ping()
    before, most, sent = memory_of(client.worker), 0, 0
    # At the limit the worker waits for two seconds before it reads more.
    client.connection.settimeout(6)
    with contextlib.suppress(TimeoutError):
        for batch in batches:
            client.connection.sendall(batch)
            sent += len(batch)
            most = max(most, memory_of(client.worker) - before)
            if sent >= bytes_max:
                break
    most = max(most, memory_of(client.worker) - before)
    return sent, most


def wait_lists_without_end(node):
    """Transfers with the longest wait lists, behind events that never end. Each entry of 8 bytes
    costs the worker some 60."""
    client = Client(node).setup()
    mem = client.buffer(4096)
    never = [client.id() for _ in range(64)]
    client.connection.sendall(b"".join(frame("ExpectEvent", event, 0) for event in never))
    waits = (never * 1024)[:65535]
    lists = (
        frame("ReceiveMem", mem, client.id(), client.id(), 0, 0, 4096, waits=waits)
        for _ in itertools.count()
    )
    sent, grown = blocks_at(client, lists, 200 * MEBI)
    other = Client(node).works()
    client.close()
    other.close()
    wait_for(lambda: not is_alive(client.worker), "the worker lives on")
    assert sent < 100 * MEBI and grown < GROWTH_MAX, (
        f"{sent // MEBI} MiB were taken, {grown // MEBI} MiB more memory"
    )
    return f"{grown // MEBI} MiB for {sent // MEBI} MiB"


@lane("all")
def commands_without_end(node):
    """Small commands behind an event that never ends, in one queue, and in queues that are released
    at once."""
    notes = []
    for name in ("one queue", "many queues"):
        client = Client(node).setup()
        never = client.id()
        client.send("ExpectEvent", never, 0)
        if name == "one queue":
            batch = frame("Marker", client.queue, 0, waits=[never]) * 4096
            sent, grown = blocks_at(client, itertools.repeat(batch), 100 * MEBI)
        else:
            sent, grown = in_many_queues(client, never)
        other = Client(node).works()
        client.close()
        other.close()
        wait_for(lambda: not is_alive(client.worker), f"{name}: the worker lives on")
        assert grown < 2 * GROWTH_MAX, f"{name}: {grown // MEBI} MiB for {sent // MEBI} MiB"
        notes.append(f"{name} {grown // MEBI} MiB for {sent // MEBI} MiB")
    return ", ".join(notes)


def in_many_queues(client, never):
    """Releases each queue with commands in it."""
    client.ping()
    before, most, sent = memory_of(client.worker), 0, 0
    client.connection.settimeout(6)
    end = time.monotonic() + 20
    with contextlib.suppress(TimeoutError):
        while time.monotonic() < end:
            batch = bytearray()
            for _ in range(16):
                queue = client.id()
                batch += frame("CreateQueue", queue, client.context, 0, 0, 0, 0)
                batch += frame("Marker", queue, 0, waits=[never]) * 256
                batch += frame("ReleaseQueue", queue)
            client.connection.sendall(batch)
            sent += len(batch)
            most = max(most, memory_of(client.worker) - before)
    return sent, most


def what_waits_is_finished(node):
    """A client with more commands behind a user event than COMMANDS_IN_FLIGHT_MAX, and less than
    four times as many, gets all of them done."""
    client = Client(node).setup()
    never = client.id()
    client.send("ExpectEvent", never, 0)
    client.connection.settimeout(PATIENCE_S)
    client.connection.sendall(frame("Marker", client.queue, 0, waits=[never]) * 100_000)
    client.send("ResolveEvent", never, 0)
    assert client.request("Finish", client.queue)[0] == 0
    client.connection.shutdown(socket.SHUT_RDWR)
    client.close()
    wait_for(lambda: not is_alive(client.worker), "the worker lives on")


ATTACKS = [wait_lists_without_end, commands_without_end, what_waits_is_finished]

"""Connections without a key, with a wrong key, or without any message."""

import collections
import contextlib
import os
import random
import socket
import struct
import threading
import time
from pathlib import Path

import wire
from node import hangs_up, is_open, stranger
from patience import PATIENCE_S, lane, wait_for
from processes import cpu_of, is_alive
from wire import Client, Refused

ROUND_TRIP_S = 0.2


def refused(act, *verdicts):
    try:
        act()
    except Refused as refusal:
        assert refusal.verdict in verdicts, f"refused with {refusal.verdict}, not {verdicts}"
        return
    except (ConnectionError, BrokenPipeError):
        return
    raise AssertionError("was let in")


def wrong_and_missing_keys(node):
    for key in (os.urandom(32), bytes(32), bytes(reversed(node.key))):
        for role in (wire.CLIENT, wire.PEER, wire.CONTROL):
            refused(lambda: wire.enter(node.address("tcp"), key, role, check=False), wire.WRONG_KEY)
    # A proof of zeros, as on a Unix socket.
    refused(lambda: wire.enter(node.address("tcp"), None), wire.WRONG_KEY)


def other_versions_and_roles(node):
    for way in ("tcp", "unix"):
        for hello, verdict in (
            (wire.hello_bytes(version=1), wire.WRONG_VERSION),
            (wire.hello_bytes(version=0xFFFF), wire.WRONG_VERSION),
            (wire.hello_bytes(role=0), wire.NOT_UNDERSTOOD),
            (wire.hello_bytes(role=0xFFFF), wire.NOT_UNDERSTOOD),
            (wire.hello_bytes(magic=b"GET / HT"), wire.NOT_UNDERSTOOD),
        ):
            refused(
                lambda: wire.enter(
                    node.address(way), node.key if way == "tcp" else None, hello=hello
                ),
                verdict,
            )


def reflected_proof(node):
    """Sends the daemon's own proof back to it."""
    connection = stranger(node)
    connection.sendall(wire.hello_bytes())
    welcome = wire.exactly(connection, wire.WELCOME_BYTES)
    connection.sendall(welcome[-32:] + bytes(32))
    assert wire.last_of(connection) == wire.WRONG_KEY
    # Also with the daemon's nonce as the client's.
    connection = stranger(node)
    connection.sendall(wire.hello_bytes(nonce=welcome[20:52]))
    second = wire.exactly(connection, wire.WELCOME_BYTES)
    connection.sendall(welcome[-32:] + bytes(32))
    assert wire.last_of(connection) == wire.WRONG_KEY
    assert second[20:52] != welcome[20:52], "a nonce came twice"


def replayed_hello(node):
    """Replays everything that a real client sent."""
    connection, hello = stranger(node), wire.hello_bytes()
    connection.sendall(hello)
    welcome = wire.exactly(connection, wire.WELCOME_BYTES)
    answer = wire.proof(node.key, "connecting", hello, welcome) + bytes(32)
    connection.sendall(answer)
    assert wire.last_of(connection) == wire.WELCOME
    connection.close()
    connection = stranger(node)
    connection.sendall(hello + answer)
    wire.exactly(connection, wire.WELCOME_BYTES)
    assert wire.last_of(connection) == wire.WRONG_KEY


def relayed_proofs_of_two_daemons_do_not_mix(node):
    """A proof for one connection must not be valid for another one, even at the same time with the
    same hello."""
    hello, pair = wire.hello_bytes(), [stranger(node), stranger(node)]
    for connection in pair:
        connection.sendall(hello)
    welcomes = [wire.exactly(connection, wire.WELCOME_BYTES) for connection in pair]
    pair[0].sendall(wire.proof(node.key, "connecting", hello, welcomes[1]) + bytes(32))
    assert wire.last_of(pair[0]) == wire.WRONG_KEY


def hello_cut_at_every_byte(node):
    """The daemon must not wait for more of a hello whose sender has finished. So it closes all
    these connections before it closes an older one, which is silent."""
    hello, silent, cuts = wire.hello_bytes(), stranger(node), []
    for cut in range(len(hello)):
        connection = stranger(node)
        connection.sendall(hello[:cut])
        connection.shutdown(socket.SHUT_WR)
        cuts.append(connection)
    for cut, connection in enumerate(cuts):
        assert hangs_up(connection) is not None, f"cut at {cut}: still open"
        connection.close()
    assert is_open(silent), "the daemon waited for more of a cut hello"
    silent.close()
    for cut in range(64):
        connection, hello = stranger(node), wire.hello_bytes()
        connection.sendall(hello)
        welcome = wire.exactly(connection, wire.WELCOME_BYTES)
        connection.sendall((wire.proof(node.key, "connecting", hello, welcome) + bytes(32))[:cut])
        connection.close()
    for cut in range(0, len(hello), 3):
        connection = wire.dial(node.address("unix"))
        connection.sendall(hello[:cut])
        connection.close()


def garbage_bytes(node):
    generator = random.Random(7)
    for turn in range(120):
        connection = wire.dial(node.address("tcp" if turn % 3 else "unix"))
        size = generator.choice([1, 9, 10, 11, 51, 52, 53, 200, 4096, 300000])
        junk = [
            generator.randbytes(size),
            b"\xff" * size,
            bytes(size),
            wire.hello_bytes() + generator.randbytes(size),
        ][turn % 4]
        with contextlib.suppress(OSError):
            connection.sendall(junk)
            if turn % 2:
                connection.shutdown(socket.SHUT_WR)
                assert hangs_up(connection) is not None, "garbage is listened to"
        connection.close()


def one_byte_a_second(node):
    """A slow client must not get more time than a silent one."""
    connection = stranger(node)
    for byte in wire.hello_bytes():
        if not is_open(connection):
            break
        with contextlib.suppress(OSError):
            connection.send(bytes([byte]))
        time.sleep(0.3)
    else:
        raise AssertionError("it may send its whole hello")
    connection.close()


def thousand_silent_connections(node):
    """During silent connections, the daemon must serve a client before it ends the silent ones, and
    it must end them all."""
    node.settle()
    silent, notes = [stranger(node) for _ in range(1000)], []
    for way in ("tcp", "unix"):
        # A client that waited for the silent ones would come after this one.
        silent.append(stranger(node))
        started = time.monotonic()
        client = Client(node, way)
        client.ping()
        notes.append(f"{(time.monotonic() - started) * 1000:.0f} ms over {way}")
        assert is_open(silent[-1]), f"a client had to wait: {notes[-1]}"
        client.works().close()
    assert node.threads() < 320, f"{node.threads()} threads"
    for connection in silent:
        assert hangs_up(connection) is not None, "a silent one is still open"
        connection.close()
    return f"served after {', '.join(notes)}"


@lane("perf")
def flood_from_one_host(node):
    """One host opens connections as fast as it can and says nothing. A client of another host,
    whose round trips take 200 ms, must get in at each attempt."""
    stop, opened = threading.Event(), []
    place = node.address("tcp").split(":", 1)[1].rsplit(":", 1)
    place = (place[0], int(place[1]))

    def flood():
        kept, count = collections.deque(), 0
        while not stop.is_set():
            connection = socket.socket()
            connection.setblocking(False)
            with contextlib.suppress(OSError):
                connection.connect(place)
            kept.append(connection)
            count += 1
            if len(kept) > 1000:
                kept.popleft().close()
        opened.append(count)
        for connection in kept:
            connection.close()

    thread = threading.Thread(target=flood)
    started = time.monotonic()
    thread.start()
    try:
        time.sleep(0.5)
        for attempt in range(5):
            honest = socket.create_connection(place, 10, ("127.0.0.2", 0))
            time.sleep(ROUND_TRIP_S)
            hello = wire.hello_bytes(wire.CONTROL)
            honest.sendall(hello)
            time.sleep(ROUND_TRIP_S)
            try:
                welcome = wire.exactly(honest, wire.WELCOME_BYTES)
                honest.sendall(wire.proof(node.key, "connecting", hello, welcome) + bytes(32))
                time.sleep(ROUND_TRIP_S)
                assert wire.last_of(honest) == wire.WELCOME
            except ConnectionError as failure:
                raise AssertionError(f"attempt {attempt + 1} was closed: {failure}") from failure
            honest.close()
    finally:
        stop.set()
        thread.join()
    rate = opened[0] / (time.monotonic() - started)
    # A slower flood would leave time to a client in any case: 256 places for 0.4 s.
    assert rate > 256 / (2 * ROUND_TRIP_S), f"only {rate:.0f} connections a second"
    wait_for(lambda: node.threads() < 20, lambda: f"{node.threads()} threads are left")
    return f"{rate:.0f} connections a second"


def connect_and_disconnect(node):
    """Four threads open 3,000 connections in total and close them at once."""

    def storm(way):
        for turn in range(750):
            with contextlib.suppress(OSError):
                connection = wire.dial(node.address(way))
                if turn % 3 == 1:
                    connection.sendall(wire.hello_bytes()[: turn % 53])
                if turn % 3 == 2:
                    connection.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
                connection.close()

    threads = [threading.Thread(target=storm, args=(way,)) for way in ("tcp", "unix", "tcp", "tcp")]
    for thread in threads:
        thread.start()
    Client(node).works().close()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    wait_for(lambda: node.threads() < 20, lambda: f"{node.threads()} threads are left")


def strangers_are_cheap(node):
    """Messages that announce large data before any proof. The daemon must not allocate memory for
    them."""
    before = node.rss()
    connections = [stranger(node) for _ in range(50)]
    for connection in connections:
        connection.sendall(wire.hello_bytes())
        with contextlib.suppress(OSError):
            connection.sendall(
                wire.frame("WriteBuffer", 1, 2, 3, 4, announce=1 << 45) + bytes(1 << 16)
            )
    # The daemon has read them when it has served somebody who came later.
    Client(node, "tcp").works().close()
    grown = node.rss() - before
    for connection in connections:
        connection.close()
    assert grown < 8 << 20, f"{grown >> 20} MiB more"


def a_socket_of_the_user_alone(node):
    about = os.stat(node.folder / "node.sock")
    assert about.st_mode & 0o777 == 0o600, f"mode {about.st_mode & 0o777:o}"
    assert os.stat(node.folder / "key").st_mode & 0o777 == 0o600
    node.settle()
    looked_at = 0
    for pid in [node.daemon.pid, *node.workers()]:
        try:
            told = {
                name: Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")
            }
        except (FileNotFoundError, ProcessLookupError):
            # The worker of an earlier client may end after it was listed.
            wait_for(
                lambda: pid not in node.workers(), f"process {pid} is listed and cannot be read"
            )
            continue
        for name, text in told.items():
            assert node.key.hex().encode() not in text, f"the key is in the {name} of process {pid}"
        looked_at += 1
    assert looked_at >= 3, (
        f"{looked_at} processes were there to look at: the daemon and two spare workers should be"
    )
    if os.geteuid() != 0:
        return "not tried as another user: needs root"
    # Another user must be refused: by the file's mode and, if the mode allows access, by the
    # kernel's credentials of the connection.
    for opened in (False, True):
        os.chmod(node.folder, 0o755)
        os.chmod(node.folder / "node.sock", 0o666 if opened else 0o600)
        child = os.fork()
        if child == 0:
            code = 9
            try:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
                try:
                    wire.enter(node.address("unix"))
                except PermissionError:
                    code = 1
                except Refused as refusal:
                    code = 2 if refusal.verdict == wire.WRONG_USER else 3
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.chmod(node.folder / "node.sock", 0o600)
        os.chmod(node.folder, 0o700)
        assert code == (2 if opened else 1), f"another user: {code}, socket open to all: {opened}"


@lane("perf")
def idle_costs_nothing(node):
    """Daemon, spare workers, and workers with idle clients must come to rest, and then use no CPU
    time in two seconds."""
    node.settle()
    idle = [Client(node, "unix").setup(), Client(node, "tcp").setup()]
    for client in idle:
        client.works()

    def processes():
        return {pid: cpu_of(pid) for pid in [node.daemon.pid, *node.workers()] if is_alive(pid)}

    def spent(pid, was):
        # The daemon has just ended a spare worker that it no longer needs, so it was not idle.
        return round(cpu_of(pid) - was, 3) if is_alive(pid) else 1

    def is_at_rest():
        """Returns whether all workers have started and no process works for half a second. A
        process that looks for work from time to time never comes to rest."""
        control = node.control()
        if control["spare_workers"] != 2 or control["starting_workers"]:
            return False
        before = processes()
        time.sleep(0.5)
        return before == processes()

    wait_for(is_at_rest, "the node does not come to rest")
    before = processes()
    time.sleep(2)
    spent_s = {pid: spent(pid, was) for pid, was in before.items()}
    for client in idle:
        client.close()
    assert max(spent_s.values()) <= 0.01, f"CPU seconds in 2 s: {spent_s}"


def log_is_short(node):
    """Strangers must not be able to fill the disk, nor write lines of their own."""
    said = node.said()
    lines = said.splitlines()
    odd = [
        line
        for line in lines
        if not line.startswith("20") and "PoCL" not in line and "pocl" not in line
    ]
    assert len(said) < 1 << 20, f"{len(said)} bytes of log"
    assert not any("FORGED" in line[:40] for line in lines), "a line was forged"
    return f"{len(lines)} lines, {len(said) >> 10} KiB" + (
        f"; of others: {odd[0][:60]}" if odd else ""
    )


ATTACKS = [
    wrong_and_missing_keys,
    other_versions_and_roles,
    reflected_proof,
    replayed_hello,
    relayed_proofs_of_two_daemons_do_not_mix,
    hello_cut_at_every_byte,
    garbage_bytes,
    one_byte_a_second,
    thousand_silent_connections,
    flood_from_one_host,
    connect_and_disconnect,
    strangers_are_cheap,
    a_socket_of_the_user_alone,
    idle_costs_nothing,
]

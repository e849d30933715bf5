"""The cases: what is ended or sent, and what must be true afterwards. Each case is a function of
the number of repetitions, the kind of link, and a folder of its own. It raises `Fault` for a
failure, and may return a note, which begins with SKIPPED if the system does not allow the case.
"""

import contextlib
import ctypes
import errno
import os
import random
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path

from node import (
    ABORTED_WITHIN_S,
    BIN,
    ERROR_WITHIN_S,
    Fault,
    Node,
)
from patience import PATIENCE_S, runs, wait_for
from processes import is_alive


def slowest(seconds, bar_s, what="errors"):
    """Returns a note on the times after which something came. The lane `perf` judges them."""
    worst_s, middle_s = max(seconds, default=0), sorted(seconds)[len(seconds) // 2]
    note = f"{what} after {worst_s:.2f} s at most, {middle_s:.2f} s in the middle"
    if runs("perf") and worst_s > bar_s:
        raise Fault(f"{note}; the bar is {bar_s} s")
    return note


MODES = ["transfers", "kernels", "reads", "maps", "builds"]


@contextlib.contextmanager
def node_in_use(folder, kind):
    """Provides a node with a client that must not notice anything else that happens there."""
    node = Node(folder, kind)
    other = node.client("steady", 3600)
    try:
        other.wait_busy()
        yield node, other
        other.process.send_signal(signal.SIGTERM)
        other.must_be_right()
        node.must_serve()
    finally:
        with contextlib.suppress(ProcessLookupError):
            other.process.kill()
        node.stop()


def must_live(other):
    if other.process.poll() is not None:
        raise Fault(f"the other client ended: {other.lines[-3:]}")


def is_at_rest(node):
    """Returns whether the daemon has all the workers that it keeps ready."""
    status = node.status()
    return status["spare_workers"] >= 2 and not status["starting_workers"]


def kill_clients(times, kind, folder):
    """Clients are killed. Their workers must end; the daemon and another client must go on."""
    with node_in_use(folder, kind) as (node, other):
        wait_for(lambda: is_at_rest(node), lambda: f"starting workers: {node.status()}")
        before = set(node.workers())
        for turn in range(times):
            client = node.client(MODES[turn % len(MODES)])
            client.wait_busy()
            time.sleep(random.uniform(0, 0.05))
            node.workers()
            client.kill()
            must_live(other)
        # Spare workers may be new ones, but there must be no more than before.
        wait_for(
            lambda: len(node.workers()) <= len(before) + 1,
            lambda: f"workers left: {len(node.workers())}, before {len(before)}",
        )


def kill_workers(times, kind, folder):
    """A worker is killed. Its client must get an error; the daemon and another client must go
    on."""
    errors_s = []
    with node_in_use(folder, kind) as (node, other):
        for turn in range(times):
            known = node.workers()
            client = node.client(MODES[turn % len(MODES)])
            client.wait_busy()
            time.sleep(random.uniform(0.02, 0.08))
            busy = worker_of(client, node)
            if busy is None:
                raise Fault(f"no worker found for the client (before: {len(known)})")
            since = time.monotonic()
            os.kill(busy, signal.SIGKILL)
            errors_s.append(client.must_get_error(since))
            must_live(other)
    return slowest(errors_s, ERROR_WITHIN_S)


def inodes_of(pid):
    found = set()
    with contextlib.suppress(OSError):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                name = os.readlink(fd)
                if name.startswith("socket:["):
                    found.add(int(name[8:-1]))
    return found


def worker_of(client, node):
    """Returns the worker at the other end of the client's socket, from the kernel's tables (ss
    knows both ends)."""
    mine = inodes_of(client.process.pid)
    peers = set()
    listing = subprocess.run(["ss", "-xnp"], capture_output=True, text=True).stdout
    for line in listing.splitlines():
        fields = line.split()
        # Netid State Recv-Q Send-Q Local Address:Port(inode) Peer Address:Port(inode) Process
        numbers = [int(field) for field in fields if field.isdigit()]
        if len(numbers) >= 4 and numbers[2] in mine:
            peers.add(numbers[3])
    ports = set()
    listing = subprocess.run(["ss", "-tnpe"], capture_output=True, text=True).stdout
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) >= 5 and f"pid={client.process.pid}," in line:
            ports.add((fields[4], fields[3]))
    for pid in node.workers():
        if inodes_of(pid) & peers:
            return pid
        for line in listing.splitlines():
            fields = line.split()
            if len(fields) >= 5 and f"pid={pid}," in line and (fields[3], fields[4]) in ports:
                return pid
    return None


def kill_daemons(times, kind, folder):
    """The daemon is killed. Its clients may finish their work or get an error. A new daemon must
    start."""
    for turn in range(times):
        node = Node(folder, kind, 0)
        client = node.client(MODES[turn % len(MODES)], 2)
        client.wait_busy()
        time.sleep(random.uniform(0, 0.05))
        node.workers()
        node.daemon.kill()
        node.daemon.wait()
        # The load ends by itself after 2 seconds, with right results or with an error.
        client.must_end("a client hangs after the daemon's end")
        if client.process.returncode < 0 or any("wrong" in line for line in client.lines):
            raise Fault(f"a client ended with {client.process.returncode}: {client.lines[-3:]}")
        node.nothing_left()
    Node(folder, kind, 0).stop()


def kill_one_of_two(times, kind, folder):
    """One of two nodes is killed. Commands on it must fail, and the process must go on."""
    errors_s = []
    for turn in range(times):
        first, second = Node(folder, "unix", 0), Node(folder, "tcp", 1)
        try:
            client = first.client("moving" if turn % 4 < 2 else "both", nodes=[first, second])
            client.wait_busy()
            time.sleep(random.uniform(0.02, 0.08))
            for node in (first, second):
                node.workers()
            # The whole node: its daemon and all its workers.
            victim = second if turn % 2 else first
            since = time.monotonic()
            for pid in [victim.daemon.pid, *victim.workers()]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            victim.daemon.wait()
            errors_s.append(client.must_get_error(since))
        finally:
            for node in (first, second):
                if node.daemon.poll() is None:
                    node.stop()
                for path in Path(folder).glob("*.sock"):
                    path.unlink()
    return slowest(errors_s, ERROR_WITHIN_S)


def spare_the_rest(times, kind, folder):
    """The worker of one node is stopped, then killed. Commands on the other node that are only
    ordered after the failing ones must run."""
    first, second = Node(folder, kind, 0), Node(folder, kind, 1)
    try:
        for _ in range(times):
            client = first.client("spared", nodes=[first, second])
            client.wait_busy()
            for node in (first, second):
                node.workers()
            victim = worker_of(client, second)
            if victim is None:
                raise Fault("no worker found for the client")
            os.kill(victim, signal.SIGSTOP)
            client.process.send_signal(signal.SIGTERM)
            wait_for(
                lambda it=client: "enqueued" in it.lines or it.process.poll() is not None,
                "the client waits for the stopped node",
            )
            os.kill(victim, signal.SIGKILL)
            client.must_be_right()
        first.must_serve()
        second.must_serve()
    finally:
        first.stop()
        second.stop()


def kill_member(times, kind, folder):
    """Kernels on two nodes wait for each other in a heap, and the worker of one is killed. The
    kernel of the other must leave. Over Unix sockets the two share memory, over TCP they
    have proxies."""
    first, second = Node(folder, kind, 0), Node(folder, kind, 1)
    aborted_s = []
    try:
        for turn in range(times):
            client = first.client("heap", nodes=[first, second])
            client.wait_busy()
            time.sleep(random.uniform(0, 0.05))
            for node in (first, second):
                node.workers()
            workers = [worker_of(client, node) for node in (first, second)]
            if None in workers:
                raise Fault("no worker found for the client")
            since = time.monotonic()
            os.kill(workers[turn % 2], signal.SIGKILL)
            aborted_s.append(client.must_be_aborted(since))
        # If the client itself ends, a waiting kernel must not keep its worker alive.
        for _ in range(max(1, times // 10)):
            client = first.client("heap", nodes=[first, second])
            client.wait_busy()
            workers = [worker_of(client, node) for node in (first, second)]
            client.kill()
            wait_for(
                lambda left=workers: not any(map(is_alive, left)),
                lambda left=workers: f"workers of an ended client left: {left}",
            )
        first.must_serve()
        second.must_serve()
    finally:
        first.stop()
        second.stop()
    return slowest(aborted_s, ABORTED_WITHIN_S, "kernels aborted")


def end_links(pid, port):
    """Ends the connections of a process to a port of this host, as a network failure would. Returns
    the number of connections."""
    ended, pidfd = 0, os.pidfd_open(pid)
    libc = ctypes.CDLL(None, use_errno=True)
    for number in [int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir()]:
        # The system call pidfd_getfd.
        copy = libc.syscall(438, pidfd, number, 0)
        if copy < 0:
            # A container may forbid it, and then for all processes.
            if ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
                os.close(pidfd)
                raise PermissionError("a process may not take a descriptor of another here")
            continue
        try:
            with socket.socket(fileno=copy) as link:
                if link.family == socket.AF_INET and link.getpeername()[1] == port:
                    link.shutdown(socket.SHUT_RDWR)
                    ended += 1
        except OSError:
            with contextlib.suppress(OSError):
                os.close(copy)
    os.close(pidfd)
    return ended


def lose_link(times, kind, folder):
    """The link between two workers ends, and both live. Operations under way must fail; then the client relays."""
    for _ in range(times):
        first, second = Node(folder, "unix", 0), Node(folder, "tcp", 1)
        try:
            client = first.client("again", nodes=[first, second])
            client.wait_busy()
            port = int(second.address.rsplit(":", 1)[1])
            try:
                links = sum(end_links(pid, port) for pid in first.workers())
            except PermissionError as why:
                client.kill()
                return f"SKIPPED: {why}"
            if not links:
                raise Fault("the workers have no link")
            seen = len(client.lines)
            wait_for(
                lambda: client.lines[seen:].count("right") > 10,
                lambda: f"nothing works without the link: {client.lines[seen : seen + 5]}",
            )
            failed = sum(line.startswith("failed") for line in client.lines)
            if failed > 5:
                raise Fault(f"{failed} turns failed: a lost link is still used")
            client.process.send_signal(signal.SIGTERM)
            client.must_be_right()
        finally:
            first.stop()
            second.stop()


def dial(node):
    kind, rest = node.address.split(":", 1)
    if kind == "unix":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(rest)
    else:
        host, port = rest.rsplit(":", 1)
        connection = socket.create_connection((host, int(port)))
    connection.settimeout(PATIENCE_S)
    return connection


def silent_connections(times, kind, folder):
    """A thousand silent connections. The daemon must keep serving, and drop them."""
    node = Node(folder, kind)
    connections = []
    try:
        for _ in range(min(1000, times * 50)):
            with contextlib.suppress(OSError):
                connections.append(dial(node))
        node.must_serve()
        dropped = 0
        for connection in connections:
            with contextlib.suppress(OSError):
                while connection.recv(4096):
                    pass
                dropped += 1
        if dropped < len(connections):
            raise Fault(
                f"{len(connections) - dropped} of {len(connections)} silent connections are still open after {PATIENCE_S} s"
            )
        node.must_serve()
    finally:
        for connection in connections:
            connection.close()
        node.stop()


def garbage(times, kind, folder):
    """Random bytes, truncated hellos, wrong lengths. The daemon must refuse them and keep
    serving."""
    node = Node(folder, kind)
    generator = random.Random(1)
    try:
        for turn in range(times * 20):
            connection = dial(node)
            size = generator.choice([1, 4, 31, 32, 64, 200, 4096, 100000])
            if turn % 4 == 0:
                sent = generator.randbytes(size)
            elif turn % 4 == 1:
                sent = b"\xff" * size
            elif turn % 4 == 2:
                sent = bytes(size)
            else:
                # Part of a real client's hello, then garbage.
                sent = real_hello(node)[: generator.randrange(1, 200)] + generator.randbytes(size)
            with contextlib.suppress(OSError):
                connection.sendall(sent)
                if turn % 3 == 0:
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(4096):
                        pass
            connection.close()
        node.must_serve()
    finally:
        node.stop()


_hello = {}


def real_hello(node):
    """Returns the first bytes that a client sends to a listener that does not answer."""
    if node.kind not in _hello:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        fake = type("Fake", (), {"address": f"tcp:127.0.0.1:{listener.getsockname()[1]}"})
        client = node.client("check", nodes=[fake])
        listener.settimeout(PATIENCE_S)
        try:
            connection, _ = listener.accept()
            connection.settimeout(PATIENCE_S)
            _hello[node.kind] = connection.recv(65536)
            connection.close()
        except OSError as error:
            raise Fault(f"a client says no hello: {error}") from None
        finally:
            listener.close()
            client.kill()
    return _hello[node.kind]


def replayed_hello_in_pieces(times, kind, folder):
    """Sends a correct hello, cut off at every byte."""
    node = Node(folder, kind)
    try:
        start = real_hello(node)
        for length in range(0, len(start) + 1, max(1, len(start) // (times * 10))):
            connection = dial(node)
            with contextlib.suppress(OSError):
                connection.sendall(start[:length])
            connection.close()
        node.must_serve()
    finally:
        node.stop()


def wrong_keys(times, kind, folder):
    """Without the right key, a client must be refused with a message and must not be served."""
    node = Node(folder, "tcp")
    try:
        other = Path(folder) / "other-key"
        subprocess.run(
            [BIN / "penstock", "key", "--create"],
            env=dict(os.environ, PENSTOCK_KEY=str(other)),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        for key in (str(other), str(Path(folder) / "missing")):
            for _ in range(min(times, 5)):
                right, node.env["PENSTOCK_KEY"] = node.env["PENSTOCK_KEY"], key
                client = node.client("check")
                node.env["PENSTOCK_KEY"] = right
                client.must_end("a client with a wrong key hangs")
                if client.process.returncode == 0:
                    raise Fault(f"a client with key {key} was served")
        node.must_serve()
    finally:
        node.stop()


# Memory that a worker may still allocate. Its threads and messages need much less. It may also get
# the stack of a thread that has built a program, of 64 MiB, back later. The load's large buffer, of
# 320 MiB, has no room in both together.
SPARE_BYTES = 192 << 20


def refuse_memory(times, kind, folder):
    """One of two nodes has no memory for a buffer. Its kernels must fail, and the other node must
    have the content from before them."""
    for _ in range(min(times, 3)):
        first, second = Node(folder, "unix", 0), Node(folder, "tcp", 1)
        try:
            client = first.client("fallback", nodes=[first, second])
            client.wait_busy()
            first.workers()
            for pid in second.workers():
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
                limit = pages * os.sysconf("SC_PAGESIZE") + SPARE_BYTES
                resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))
            client.process.send_signal(signal.SIGTERM)
            client.must_be_right()
        finally:
            for node in (first, second):
                if node.daemon.poll() is None:
                    node.stop()
                for path in Path(folder).glob("*.sock"):
                    path.unlink()


# The least silence after which a client may give up a worker.
SILENCE = {"PENSTOCK_SILENCE_S": "15"}
# Transfers need no worker on this host, so a client without a pause copies until it gives up.
CALM = SILENCE | {"LOAD_PAUSE_MS": "20"}


def stop_workers(times, kind, folder):
    """Workers are stopped, as on a host that is frozen. Whatever their clients wait for must fail,
    also at another worker that waits for a stopped one, and must name the node and the reason.
    What needs none of them goes on, also in a client that was itself stopped for as long."""
    first, second = Node(folder, kind, 0), Node(folder, kind, 1)
    stopped = []
    try:
        for node in (first, second):
            node.workers()
        asleep, steady = (first.client("steady", 3600, **CALM) for _ in range(2))
        spared = first.client("spared", nodes=[first, second], **SILENCE)
        both = first.client("moving", nodes=[first, second], **SILENCE)
        waiting = [second.client(mode, **CALM) for mode in MODES]
        # It has no pause, because it must use up all room on the way to its worker.
        waiting.append(second.client("fills", **SILENCE))
        for client in (asleep, steady, spared, both, *waiting):
            client.wait_busy()
        for client in (spared, both, *waiting):
            stopped.append(worker_of(client, second))
        if None in stopped:
            raise Fault("no worker found for a client")
        asleep.process.send_signal(signal.SIGSTOP)
        since = time.monotonic()
        for worker in stopped:
            os.kill(worker, signal.SIGSTOP)
        spared.process.send_signal(signal.SIGTERM)
        errors_s = [client.must_get_error(since) for client in (both, *waiting)]
        for client in waiting:
            if not any("has sent nothing for 15 s" in line for line in client.lines):
                raise Fault(f"the reason is missing: {client.lines[-3:]}")
            if not any(second.address in line for line in client.lines):
                raise Fault(f"the node is not named: {client.lines[-3:]}")
        spared.must_be_right()
        asleep.process.send_signal(signal.SIGCONT)
        seen = len(asleep.lines)
        for client in (asleep, steady):
            must_live(client)
            client.process.send_signal(signal.SIGTERM)
            client.must_be_right()
        if any("lost" in line for line in asleep.lines[seen:]):
            raise Fault(f"the client took its own absence for its worker's: {asleep.lines[seen:]}")
    finally:
        for worker in filter(None, stopped):
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)
        for node in (first, second):
            node.stop()
    return slowest(errors_s, float("inf"))


def stop_daemon(times, kind, folder):
    """A daemon is stopped. Its sessions go on, and a new client must get an error."""
    node = Node(folder, kind, 0)
    try:
        node.workers()
        steady = node.client("steady", 3600)
        steady.wait_busy()
        node.daemon.send_signal(signal.SIGSTOP)
        late = node.client("check", PENSTOCK_TIMEOUT_MS="2000")
        late.must_end("a client waits for a stopped daemon")
        if late.process.returncode == 0:
            raise Fault(f"a stopped daemon served a client: {late.lines}")
        if not any("PENSTOCK_TIMEOUT_MS" in line for line in late.lines):
            raise Fault(f"the reason is missing: {late.lines}")
        must_live(steady)
        steady.process.send_signal(signal.SIGTERM)
        steady.must_be_right()
    finally:
        node.daemon.send_signal(signal.SIGCONT)
        node.stop()


CASES = {
    "client killed": (kill_clients, ("unix", "tcp")),
    "worker killed": (kill_workers, ("unix", "tcp")),
    # Each takes a minute, most of it a wait.
    "worker stopped": (stop_workers, ("unix", "tcp", "tls") if runs("all") else ("unix",)),
    "daemon stopped": (stop_daemon, ("unix", "tcp")),
    "daemon killed": (kill_daemons, ("unix", "tcp")),
    "node of two killed": (kill_one_of_two, ("two",)),
    "rest of two spared": (spare_the_rest, ("unix", "tcp")),
    "node of two is full": (refuse_memory, ("two",)),
    "member of a heap killed": (kill_member, ("unix", "tcp")),
    "link of two lost": (lose_link, ("two",)),
    "silent connections": (silent_connections, ("unix", "tcp")),
    "garbage": (garbage, ("unix", "tcp")),
    "cut-off hello": (replayed_hello_in_pieces, ("tcp",)),
    "wrong keys": (wrong_keys, ("tcp",)),
}
# Those whose times the lane `perf` judges.
IN_TIME = ("worker killed", "node of two killed", "member of a heap killed")

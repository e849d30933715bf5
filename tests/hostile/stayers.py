"""Kernels that keep their worker, and so a session's place, after the client has left.

A worker notices itself that its client has left, and looks itself at the limits of time. A kernel
runs in the same process, and can keep it from that. So the daemon watches the clients, too.
"""

import errno
import os
import signal
import struct
from pathlib import Path

from confinement import At, Kernel, node_at
from escapes import launch, words_of
from flight import Parker
from patience import wait_for
from processes import is_alive
from wire import Client

# Numbers of system calls on x86-64.
DUP2, GETPID, SOCKET, KILL, TIMER_CREATE, TIMER_SETTIME, TGKILL = 33, 39, 41, 62, 222, 223, 234
CLOCK_MONOTONIC, SIGEV_SIGNAL, AF_NETLINK, SOCK_RAW = 1, 0, 16, 3
STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
FOREVER = 1 << 40


def state_of(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def must_go(node, kernel):
    """The client leaves. The worker must not stay, and others are served."""
    worker = kernel.client.worker
    assert is_alive(worker), "the worker has ended too early"
    kernel.client.close()
    wait_for(lambda: not is_alive(worker), "the worker stays")
    wait_for(lambda: not node.control()["sessions"], "the session keeps its place")
    words = (f"worker={worker}", "outlives its session")
    wait_for(
        lambda: any(all(word in line for word in words) for line in node.said().splitlines()),
        "the log does not say why the worker has ended",
    )
    Client(node).works().close()


def a_worker_that_stops_itself(_):
    """Below the level `calls` a kernel may signal its process."""
    with node_at("basic", "pocl") as node:
        kernel = Kernel(node)
        stop = [KILL, kernel.client.worker, signal.SIGSTOP]
        launch(kernel, "make_many", words_of((0, [1]), (32, stop), (48, [GETPID])))
        wait_for(lambda: state_of(kernel.client.worker) == "T", "the worker does not stop")
        must_go(node, kernel)


def a_worker_that_a_clock_stops(_):
    """At the default level a kernel may not stop its process. But it can have a clock do so."""
    with node_at("full", "pocl") as node:
        kernel = Kernel(node)
        worker = kernel.client.worker
        for stop in STOPS:
            assert kernel.call(KILL, worker, stop) == -errno.EPERM
            assert kernel.call(TGKILL, worker, worker, stop) == -errno.EPERM
        kernel.put(512, struct.pack("<qii", 0, signal.SIGSTOP, SIGEV_SIGNAL) + bytes(48))
        assert kernel.call(TIMER_CREATE, CLOCK_MONOTONIC, At(512), At(640)) == 0
        (clock,) = struct.unpack("<i", kernel.get(640, 4))
        kernel.put(704, struct.pack("<4q", 0, 0, 0, 1))
        settime = [TIMER_SETTIME, clock, 0, At(704)]
        words = words_of((0, [1]), (8, [1 << 3]), (32, settime), (48, [GETPID]))
        launch(kernel, "make_many", words)
        wait_for(lambda: state_of(worker) == "T", "the worker does not stop")
        must_go(node, kernel)


def a_connection_that_is_replaced(_):
    """A kernel puts another socket in the place of the client's, and computes for ever."""
    with node_at("full", "pocl") as node:
        kernel = Parker(node)
        other = kernel.call(SOCKET, AF_NETLINK, SOCK_RAW, 0)
        assert other >= 0, f"there is no socket: {other}"
        first, second = kernel.links()
        replace = [[DUP2, other, link] for link in (first, second)]
        launch(kernel, "make_many", words_of((0, [FOREVER]), (32, replace[0]), (48, replace[1])))
        wait_for(lambda: not kernel.links(), "the connection is still there")
        must_go(node, kernel)


ATTACKS = [a_worker_that_stops_itself, a_worker_that_a_clock_stops, a_connection_that_is_replaced]

"""Kernels that leave descriptors in flight: sent to a socket from which nobody receives them.

Linux counts such descriptors for all processes of a user together. When they exceed the limit of
open files of a process without rights, this process can send none. A daemon hands each client to a
worker by sending the descriptor of its connection, so it would serve nobody any more.
"""

import contextlib
import os
import resource
import struct
import termios
from array import array
from fcntl import ioctl

from confinement import At, Kernel, node_at
from escapes import at_full, launch, words_of
from patience import wait_for
from wire import Client, Refused

SENDMSG, SOCKETPAIR, GETPID = 46, 53, 39
AF_UNIX, SOCK_STREAM, SCM_RIGHTS, MSG_DONTWAIT = 1, 1, 1, 0x40

# SCM_MAX_FD of Linux.
IN_A_MESSAGE = 253
# `DESCRIPTORS_MAX` of the daemon, which raises its limit as far as that.
OF_DAEMON_MAX = 8192

# A daemon of root has no such limit, so the one that is attacked is another user's. No other
# process has this user, because its limit is what is attacked.
IS_ROOT = os.geteuid() == 0
USER = 3_200_000_000 + os.getpid() % 65536 if IS_ROOT else None
STRANGER = 65533


class Parker(Kernel):
    """A session whose kernel sends descriptors."""

    def message(self):
        """Puts a message with as many descriptors as Linux permits into the kernel's memory. All
        are the same one. Returns its place."""
        rights = struct.pack("<qii", 16 + 4 * IN_A_MESSAGE, 1, SCM_RIGHTS)
        self.put(256, rights + struct.pack("<i", 1) * IN_A_MESSAGE + bytes(4))
        self.put(64, struct.pack("<qq", self.address + 96, 1))
        parts = (0, 0, self.address + 64, 1, self.address + 256, 16 + 4 * IN_A_MESSAGE, 0)
        return self.put(128, struct.pack("<7q", *parts))

    def links(self):
        """Returns the numbers that the client's connection has in the worker."""
        with open("/proc/net/unix") as lines:
            streams = {line.split()[6] for line in lines if line.split()[4] == "0001"}
        folder, found = f"/proc/{self.client.worker}/fd", []
        for name in sorted(os.listdir(folder), key=int):
            with contextlib.suppress(OSError):
                kind, _, inode = os.readlink(f"{folder}/{name}").partition(":")
                if kind == "socket" and inode.strip("[]") in streams:
                    found.append(int(name))
        return found

    def park_in_the_link(self, messages):
        """Returns how many descriptors are left in the client's end of the link."""
        message, connection = self.message(), self.client.connection.fileno()
        send = [SENDMSG, self.links()[0], message, MSG_DONTWAIT]
        words = words_of((0, [messages]), (8, [1 << 2]), (32, send), (48, [GETPID]))
        launch(self, "make_many", words)

        def has_ended():
            # Each message has a byte, and the news of the end has more than all of them.
            count = array("i", [0])
            ioctl(connection, termios.FIONREAD, count)
            return count[0] > messages

        wait_for(has_ended, "the kernel does not end")
        with open(f"/proc/self/fdinfo/{connection}") as lines:
            found = [line.split()[1] for line in lines if line.startswith("scm_fds")]
        return int(found[0])

    def park_in_a_pair(self, messages):
        """Returns how many descriptors are left in a pair of sockets of the worker."""
        if self.call(SOCKETPAIR, AF_UNIX, SOCK_STREAM, 0, At(2048)) < 0:
            return 0
        one = struct.unpack("<i", self.get(2048, 4))[0]
        message, sent = self.message(), 0
        for _ in range(messages):
            sent += self.call(SENDMSG, one, message, MSG_DONTWAIT) == 1
        return sent * IN_A_MESSAGE


def serves(node):
    try:
        client = Client(node)
        client.ping()
        client.close()
    except (ConnectionError, Refused):
        return False
    return True


def as_user(user, connect):
    """Connects as another user. The system notes who connects."""
    os.seteuid(user)
    try:
        return connect()
    finally:
        os.seteuid(0)


# What lets a session leave no descriptors at all, at each level and in each place: nothing, or the
# limit of a worker, or that the call is forbidden.
PLACES = (Parker.park_in_a_pair, Parker.park_in_the_link)
STOPPED_BY = {
    "off": ("nothing", "nothing"),
    "basic": ("limit", "limit"),
    "full": ("filter", "limit"),
}


def parked_at(level):
    def run(_):
        strangers = ("--allow-user", str(STRANGER))
        if level == "off" and not IS_ROOT:
            return "not tried: it would stop all daemons of this user"
        with node_at(level, "pocl", *strangers, user=USER) as node:
            node.folder.chmod(0o711)
            node.settle()
            of_daemon = min(OF_DAEMON_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
            messages = of_daemon // IN_A_MESSAGE + 1
            # The kernel looks at the limit before each message. `descriptors_of_worker` says it.
            of_worker = (of_daemon // 4 // IN_A_MESSAGE + 1) * IN_A_MESSAGE
            most = {"nothing": messages * IN_A_MESSAGE, "limit": of_worker, "filter": 0}
            found = []
            for park, stops in zip(PLACES, STOPPED_BY[level], strict=True):
                parker = Parker(node)
                found.append(park(parker, messages))
                assert found[-1] == most[stops], f"{found} in place of {most[stops]}"
                # More clients than spare workers: new workers must be able to start.
                serving = all(serves(node) for _ in range(4))
                assert serving == (found[-1] <= of_daemon), f"{found} stop the daemon"
                parker.client.close()
                wait_for(lambda: serves(node), "the daemon does not come back")
            if "nothing" in STOPPED_BY[level]:
                assert "no descriptor can be sent" in node.said(), node.said()
            # Whoever cannot send descriptors of the daemon's user himself leaves none, either.
            if level == "full" and IS_ROOT:
                stranger = as_user(STRANGER, lambda: Parker(node))
                left = stranger.park_in_the_link(messages)
                assert left == 0, f"a stranger has left {left} descriptors"
                stranger.client.close()
            return f"{found} descriptors were left, and the daemon may have {of_daemon}"

    run.__name__ = f"kernels_that_leave_descriptors_in_flight_at_level_{level}"
    return at_full(level, "pocl", run)


ATTACKS = [parked_at(level) for level in STOPPED_BY]

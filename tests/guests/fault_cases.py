"""The cases: what happens to guests, and what the daemon, the guests and another client must see.
Each case is a function of the number of repetitions, a folder of its own, and the transport of the
guests. It raises `Fault` for a failure, and may return a note.
"""

import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

from guest import Guest, Place, write_initramfs
from node import Fault, Node
from patience import lane, wait_for

# Longer than any silence that ends a session.
STOPPED_S = 35
MODES = ["transfers", "kernels", "reads", "maps", "builds"]


class Host:
    """A daemon with places for guests, and a client on the host that must not notice anything."""

    def __init__(self, folder, places, memory):
        self.places = [Place(folder, number, memory) for number in range(places)]
        listens = [place.listen for place in self.places]
        options = [word for place in self.places for word in place.options()]
        self.node = Node(folder, "unix", listens=listens, options=options)
        self.initramfs = Path(folder) / "initramfs"
        write_initramfs(self.initramfs, self.node.key)
        self.guests = []
        self.other = self.node.client("steady", 3600)

    def boot(self, place, *load, stop_s=0):
        guest = Guest(place, self.initramfs, *load, stop_s=stop_s)
        self.guests.append(guest)
        return guest

    def sharing(self):
        """Returns the number of guests whose sessions lie in memory that they share with the host,
        the parts of such memory that are taken, and why other sessions have none."""
        status = self.node.status()
        ways = [session["transport"] for session in status["sessions"]]
        reasons = [way["why_not_better"] for way in ways if not way["guest_memory"]]
        taken = sum(memory["sessions"] for memory in status["guest_memory"])
        return len(ways) - len(reasons), taken, reasons

    def must_share(self, count):
        """Checks that the sessions of this number of guests lie in shared memory, and that no other
        session has a part of it. The part of a session that has ended is free soon after."""
        if any(place.memory for place in self.places):
            wait_for(
                lambda: self.sharing()[:2] == (count, count),
                lambda: f"{count} guests must share memory: {self.sharing()}",
            )

    def ended(self, guest):
        """Returns the line of the daemon's log about the end of a guest's first session, or
        None."""
        whose = f'client="the guest of process {guest.monitor.pid} '
        lines = Path(self.node.log.name).read_text().splitlines()
        return next((line for line in lines if "session ended" in line and whose in line), None)

    def must_end(self, guest, since):
        """Waits for the end of a guest's session and returns the time that it took."""
        wait_for(lambda: self.ended(guest), "a session was not ended after its guest")
        return time.monotonic() - since


@contextlib.contextmanager
def host_in_use(folder, places, transport):
    memory = tempfile.mkdtemp(prefix="penstock-g.", dir="/dev/shm") if transport == "shm" else None
    try:
        with host_with(folder, places, memory) as host:
            yield host
    finally:
        if memory:
            shutil.rmtree(memory)


@contextlib.contextmanager
def host_with(folder, places, memory):
    host = Host(folder, places, memory)
    try:
        host.other.wait_busy()
        yield host
        host.other.process.send_signal(signal.SIGTERM)
        host.other.must_be_right()
        host.node.must_serve()
    finally:
        for guest in host.guests:
            guest.end()
        with contextlib.suppress(ProcessLookupError):
            host.other.process.kill()
        host.node.stop()


@lane("all")
def silent(_times, folder, transport):
    """Four guests fall silent in different ways, all of which the other side must tell apart: one
    is paused, one loses its monitor, one starts anew, and in one only the program is stopped."""
    with host_in_use(folder, 4, transport) as host:
        paused, orphan, anew, stopped = (
            host.boot(place, mode, 3600, stop_s=stop_s)
            for place, mode, stop_s in zip(
                host.places, ("kernels", "kernels", "idle", "steady"), (0, 0, 0, STOPPED_S)
            )
        )
        for guest in (paused, orphan, anew, stopped):
            guest.wait_busy()
        host.must_share(4)
        # The worker must have learned by now that the guest's kernel answers.
        time.sleep(3)
        since = time.monotonic()
        paused.machine.send_signal(signal.SIGSTOP)
        orphan.monitor.kill()
        anew.order("system_reset")
        orphan_s = host.must_end(orphan, since)
        paused_s = host.must_end(paused, since)
        paused.machine.send_signal(signal.SIGCONT)
        anew_s = host.must_end(anew, since)
        lost_s = orphan.must_say("error") - since
        paused.must_say("error")
        stopped.must_say("continued")
        if host.ended(stopped):
            raise Fault(f"a stopped program lost its session: {host.ended(stopped)}")
        stopped.must_be_right()
        return (
            f"paused: {paused_s:.1f} s, monitor killed: {orphan_s:.1f} s on the host and "
            f"{lost_s:.1f} s in the guest, new start: {anew_s:.1f} s"
        )


def descriptors(pid):
    """Returns what the descriptors of a process refer to, without what differs by number alone."""
    found = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(fd).split(":")[0])
    return sorted(found)


def killed(times, folder, transport):
    """A guest is killed in the middle of its work, again and again. The host must keep nothing of
    it, and neither another guest nor a client of the host may notice."""
    with host_in_use(folder, 2, transport) as host:
        victims, neighbours = host.places
        neighbour = host.boot(neighbours, "steady", 36000)
        neighbour.wait_busy()
        daemon, workers = host.node.daemon.pid, len(host.node.workers())
        before, files = descriptors(daemon), sorted(Path(folder).iterdir())
        ends_s = []
        for turn in range(times):
            guest = host.boot(victims, MODES[turn % len(MODES)], 3600)
            guest.wait_busy()
            host.must_share(2)
            time.sleep(random.uniform(0, 0.5))
            host.node.workers()
            since = time.monotonic()
            guest.kill()
            ends_s.append(host.must_end(guest, since))
            guest.end()
            host.guests.remove(guest)
            if host.other.process.poll() is not None or neighbour.said_at("error"):
                raise Fault(f"others noticed: {host.other.lines[-3:]}, {neighbour.lines[-3:]}")
        host.must_share(1)
        # One worker may be starting.
        wait_for(
            lambda: len(host.node.workers()) <= workers + 1,
            lambda: f"workers left: {len(host.node.workers())}, before {workers}",
        )
        wait_for(
            lambda: len(descriptors(daemon)) <= len(before) + 2,
            lambda: f"descriptors of the daemon: {descriptors(daemon)}, before {before}",
        )
        left = {path.name for path in Path(folder).iterdir()} - {path.name for path in files}
        if any(not name.startswith("g0") for name in left):
            raise Fault(f"files left: {left}")
        neighbour.must_be_right()
        return f"{times} guests; their sessions ended after {max(ends_s):.2f} s at most"


CASES = {"silent": silent, "killed": killed}

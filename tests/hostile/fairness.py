"""Users who want more of a device than their part of it."""

import contextlib
import ctypes
import json
import os
import signal
import statistics
import struct
import tempfile
import time
import traceback
from pathlib import Path

from node import Node
from patience import PATIENCE_S, lane, wait_for
from processes import is_alive
from strays import Leaver
from wire import Client, mem_arg, value_arg

# Users of the host that have no processes.
MANY, ONE = 60001, 60002
SECONDS = 5
# The part of a user that has one session beside seven of another one. Without sharing it is 1/8.
PART = (0.4, 0.6)
# How long a kernel of some 5 ms may take beside seven busy sessions of another user: a look of the
# daemon, a slice, the kernel, and an answer on a busy machine.
SHORT_S = 0.1
SPIN = (
    "kernel void spin(global float *w, uint n) {"
    " float x = *w; for (uint i = 0; i < n; i++) x = sin(x) + 1; *w = x; }"
)
# prctl(PR_CAPBSET_DROP, CAP_SYS_NICE)
DROP, NICE = 24, 23


def without_priorities():
    """Takes from this process, and from what it executes, the right to raise priorities."""
    if ctypes.CDLL(None, use_errno=True).prctl(DROP, NICE, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


class Session:
    """A client in a process of another user. It does `act(client, kernel, until)`, and tells what
    that returns."""

    def __init__(self, node, user, act, length):
        self.go, self.told = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self.go[1])
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
                self.run(node, act, length)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(self.go[0])
        os.close(self.told[1])
        self.output = os.fdopen(self.told[0])
        self.worker = int(self.output.readline())

    def run(self, node, act, length):
        client = Client(node).setup()
        kernel = client.kernel(SPIN, "spin")
        args = mem_arg(0, client.buffer(4)) + value_arg(1, struct.pack("<I", length))
        assert client.wait(client.launch(kernel, args)) == 0
        os.write(self.told[1], f"{client.worker}\n".encode())
        seconds = float(os.read(self.go[0], 64))
        told = act(client, kernel, time.monotonic() + seconds)
        os.write(self.told[1], json.dumps(told).encode())

    def start(self, seconds):
        os.write(self.go[1], str(seconds).encode())

    def end(self):
        """Returns what it told."""
        told = self.output.read()
        self.output.close()
        os.close(self.go[1])
        _, status = os.waitpid(self.pid, 0)
        assert status == 0, f"a client ended with {status}"
        return json.loads(told)

    def kill(self):
        """Ends it before its time."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.output.close()
        os.close(self.go[1])


def greedy(client, kernel, until):
    """Keeps the device busy. Returns the number of kernels."""
    events, count = [], 0
    while time.monotonic() < until:
        while len(events) < 4:
            events.append(client.launch(kernel))
        assert client.wait(events.pop(0)) == 0
        count += 1
    return count


def far_ahead(client, kernel, until):
    """Gives the device all launches at once."""
    events = [client.launch(kernel) for _ in range(2000)]
    count = 0
    with contextlib.suppress(TimeoutError):
        for event in events:
            client.wait(event, max(0.001, until - time.monotonic()))
            count += 1
    return count


def short(client, kernel, until):
    """Launches one kernel now and then. Returns how long each of them took."""
    took = []
    while time.monotonic() < until:
        began = time.monotonic()
        assert client.wait(client.launch(kernel)) == 0
        took.append(time.monotonic() - began)
        time.sleep(0.05)
    return took


def length_of_ms(node, target_ms):
    """Returns the length of a kernel that takes some milliseconds here."""
    client = Client(node).setup()
    kernel = client.kernel(SPIN, "spin")
    mem, times = client.buffer(4), []
    for _ in range(5):
        args = mem_arg(0, mem) + value_arg(1, struct.pack("<I", 200_000))
        began = time.monotonic()
        client.wait(client.launch(kernel, args))
        times.append(time.monotonic() - began)
    client.close()
    return max(1000, int(200_000 * target_ms / 1000 / min(times)))


@contextlib.contextmanager
def shared_node(before=None, lines=""):
    """A daemon that lets both users in. A kernel has one work-item, so a session uses one core."""
    with contextlib.ExitStack() as stack:
        users = ["--allow-user", str(MANY), "--allow-user", str(ONE)]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-shares.")))
        limits = folder / "limits.toml"
        limits.write_text(lines)
        # Sharing does not depend on confinement. Without it, eight sessions compile a kernel once.
        environment = {"PENSTOCK_CONFINE": "off", "POCL_CACHE_DIR": str(folder / "cache")}
        options = [*users, "--limits", str(limits)]
        node = stack.enter_context(Node(options, environment=environment, before=before))
        node.folder.chmod(0o755)
        yield node


def run(node, sessions, seconds=SECONDS):
    for session in sessions:
        session.start(seconds)
    told = [session.end() for session in sessions]
    for session in sessions:
        wait_for(lambda s=session: not is_alive(s.worker), "a worker lives on")
    return told


def part_of_one(node, act=greedy, sessions_of_one=1):
    length = length_of_ms(node, 5)
    users = [ONE] * sessions_of_one + [MANY] * 7
    counts = run(node, [Session(node, user, act, length) for user in users])
    return sum(counts[:sessions_of_one]) / sum(counts), sum(counts)


def needs_root():
    return "" if os.geteuid() == 0 else "not tried with two users: needs root"


@lane("perf")
def more_sessions_for_more_of_a_device(_node):
    """A user with seven sessions beside a user with one, where the daemon may change priorities and
    where it may not."""
    if needs_root():
        return needs_root()
    notes = []
    for name, before in (("priorities", None), ("turns", without_priorities)):
        with shared_node(before) as node:
            part, count = part_of_one(node)
        notes.append(f"{name}: {part:.2f} of {count} kernels")
        assert PART[0] <= part <= PART[1], f"{name}: {part:.2f}"
    return "one session beside seven: " + ", ".join(notes)


@lane("perf")
def launches_far_ahead(_node):
    """Seven sessions that give the device thousands of launches at once."""
    if needs_root():
        return needs_root()
    with shared_node() as node:
        part, count = part_of_one(node, far_ahead)
    assert PART[0] <= part <= PART[1], f"{part:.2f}"
    return f"{part:.2f} of {count} kernels"


@lane("perf")
def a_share_of_three(_node):
    if needs_root():
        return needs_root()
    with shared_node(lines=f"[user.{ONE}]\ndevice_share = 3\n") as node:
        # A session uses one core, and three quarters of two cores are more than one.
        part, count = part_of_one(node, sessions_of_one=2)
    # Equal users would have half each, and Linux alone would give this one two ninths.
    assert 0.62 <= part <= 0.88, f"{part:.2f}"
    return f"{part:.2f} of {count} kernels"


@lane("perf")
def short_work_beside_greedy_work(_node):
    """A user that launches a kernel now and then, beside seven sessions that always work."""
    if needs_root():
        return needs_root()
    notes = []
    for name, before in (("priorities", None), ("turns", without_priorities)):
        with shared_node(before) as node:
            length = length_of_ms(node, 5)
            (alone,) = run(node, [Session(node, ONE, short, length)], 2)
            many = [Session(node, MANY, greedy, length) for _ in range(7)]
            took, *_ = run(node, [Session(node, ONE, short, length), *many])
        middle, most = statistics.median(took), max(took)
        notes.append(
            f"{name}: {1e3 * middle:.1f} ms, at most {1e3 * most:.1f} "
            f"(alone {1e3 * statistics.median(alone):.1f})"
        )
        assert middle <= SHORT_S, notes[-1]
    return ", ".join(notes)


def gated(client, kernel, until):
    """Launches kernels that wait for an event which this client sets behind them. Returns how often
    all of them have ended, and the longest time that this took."""
    rounds, longest = 0, 0
    while rounds < 2 or time.monotonic() < until:
        began, event = time.monotonic(), client.id()
        client.send("ExpectEvent", event, 0)
        ends = [client.launch(kernel, waits=[event]) for _ in range(12)]
        client.send("ResolveEvent", event, 0)
        for end in ends:
            assert client.wait(end) == 0
        rounds, longest = rounds + 1, max(longest, time.monotonic() - began)
    return rounds, longest


def launches_that_wait_for_their_client(_node):
    """At a gate the worker reads no calls, also not the one that its launches wait for."""
    if needs_root():
        return needs_root()
    with shared_node(without_priorities) as node:
        length = length_of_ms(node, 2)
        acts = [(ONE, gated), (MANY, gated), (MANY, greedy), (ONE, greedy)]
        told = run(node, [Session(node, user, act, length) for user, act in acts], 1)
    (one, of_one), (many, of_many) = told[:2]
    return f"{one} and {many} rounds of 12 launches, at most {max(of_one, of_many):.2f} s"


def endless(client, kernel, until):
    """Runs one kernel that does not end before the session."""
    args = mem_arg(0, client.buffer(4)) + value_arg(1, struct.pack("<I", 0xFFFFFFFF))
    client.launch(kernel, args)
    client.ping()
    time.sleep(max(0, until - time.monotonic()))
    return 0


@lane("perf")
def users_whose_kernels_never_end(_node):
    """A user whose kernels never end, on all cores, beside one with short kernels."""
    if needs_root():
        return needs_root()
    notes = []
    for name, before in (("priorities", None), ("turns", without_priorities)):
        with shared_node(before) as node:
            length = length_of_ms(node, 5)
            sessions = [Session(node, ONE, greedy, length)]
            sessions += [Session(node, MANY, endless, length) for _ in range(4)]
            count, *_ = run(node, sessions)
        notes.append(f"{name}: {count / SECONDS:.0f} kernels of 5 ms a second")
        # Linux alone gives it two fifths of a core.
        assert count > 5 * SECONDS, notes[-1]
    return ", ".join(notes)


def leaves_threads(client, kernel, until):
    """Leaves a thread in the worker, and gives the device nothing more."""
    leaver = Leaver(client)
    leaver.leave(1)
    time.sleep(max(0, until - time.monotonic()))
    return leaver.read()[1]


@lane("perf")
def threads_that_kernels_leave(_node):
    """A user whose kernels have left threads on all cores, beside one with short kernels."""
    if needs_root():
        return needs_root()
    with shared_node() as node:
        length = length_of_ms(node, 5)
        sessions = [Session(node, ONE, greedy, length)]
        sessions += [Session(node, MANY, leaves_threads, length) for _ in range(6)]
        count, *_ = run(node, sessions)
    # Linux alone gives it two sevenths of a core, and 57 kernels a second at the most.
    note = f"{count / SECONDS:.0f} kernels of 5 ms a second"
    assert count > 60 * SECONDS, note
    return note


def the_time_of_each_user_is_told(_node):
    if needs_root():
        return needs_root()
    with shared_node() as node:
        length = length_of_ms(node, 5)
        sessions = [Session(node, user, greedy, length) for user in (ONE, MANY)]
        for session in sessions:
            # Until it has used a second, however many others use the cores.
            session.start(10 * PATIENCE_S)

        def rows():
            told = node.control()["quota"]["rows"]
            return {it["user"]: it["held"] for it in told if it["limit"] == "device_time"}

        wait_for(
            lambda: set(rows()) == {str(ONE), str(MANY)} and all(rows().values()),
            lambda: f"the time of each user is not told: {rows()}",
        )
        quota = node.control()["quota"]
        for session in sessions:
            session.kill()
    how = [it for it in quota["enforcement"] if it["limit"] == "device_time"]
    assert len(how) == 1 and how[0]["enforced"], how


ATTACKS = [
    more_sessions_for_more_of_a_device,
    launches_far_ahead,
    a_share_of_three,
    short_work_beside_greedy_work,
    launches_that_wait_for_their_client,
    users_whose_kernels_never_end,
    threads_that_kernels_leave,
    the_time_of_each_user_is_told,
]

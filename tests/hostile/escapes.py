"""Kernels that get around the confinement of their worker: what stops each way, and what does not.

`confinement.py` has the plain attacks. The attacks here use a gap: calls that Landlock does not
see, the one kind of process that may start, and files that the daemon must clean up.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from pathlib import Path

import confinement
from confinement import DRIVERS, INTEL, LEVELS, PREAD, At, Kernel, node_at, own_folder
from patience import lane, wait_for
from processes import is_alive, tree
from wire import Client, mem_arg

# Numbers of system calls on x86-64.
WRITE, PIPE, SOCKET, CONNECT, CLONE, FCNTL, CHDIR, MKDIR = 1, 22, 41, 42, 56, 72, 80, 83
FCHMOD, UTIMENSAT, SENDTO, IO_SETUP, IO_DESTROY = 91, 280, 44, 206, 207
NETLINK_KOBJECT_UEVENT, RTM_GETADDR, NLM_F_REQUEST = 15, 22, 1
CHMOD, PAUSE, SETPRIORITY, INOTIFY_ADD_WATCH, INOTIFY_INIT, FCHMODAT2 = 90, 34, 141, 254, 294, 452
F_SETFL, F_SETOWN, F_SETSIG, O_ASYNC = 4, 8, 10, 0o20000
AT_FDCWD = -100

# The flags with which the C library starts a program.
SPAWN = 0x100 | 0x4000 | signal.SIGCHLD

# `make_many` makes the calls at a[32] and a[48] a[0] times. `leave_a_child` makes the call at a[0],
# and a process that this call has made makes the call at a[48] for ever.
SOURCE = (
    confinement.SOURCE
    + """
kernel void make_many(global volatile long *a, global char *b) {
  for (int i = 0; i < 7; i++) {
    a[64 + i] = a[32 + i] + (((a[8] >> i) & 1) ? (long)b : 0);
    a[80 + i] = a[48 + i] + (((a[8] >> i) & 1) ? (long)b : 0);
  }
  for (long i = 0; i < a[0]; i++) {
    SYSTEM_CALL(a + 64);
    SYSTEM_CALL(a + 80);
    if (a[87] < 0) break;
  }
}
kernel void leave_a_child(global volatile long *a, global char *b) {
  for (int i = 0; i < 7; i++) a[64 + i] = a[i];
  SYSTEM_CALL(a + 64);
  if (a[71] == 0)
    for (;;) SYSTEM_CALL(a + 48);
}
"""
)


def words_of(*calls, size=96):
    """Returns a block of words with some words at each place."""
    words = [0] * size
    for place, values in calls:
        words[place : place + len(values)] = values
    return struct.pack(f"<{size}q", *words)


def launch(kernel, name, words):
    """Launches another kernel of the source with these words. Returns its event."""
    client = kernel.client
    made, block = client.kernel(SOURCE, name), client.buffer(len(words))
    client.send("WriteBuffer", client.queue, block, 0, 0, payload=words)
    return client.launch(made, mem_arg(0, block) + mem_arg(1, kernel.b))


def many(kernel, count, first, second):
    """Makes two calls with the path in the kernel's second buffer many times."""
    words = words_of((0, [count]), (8, [2, 2]), (32, first), (48, second))
    assert kernel.client.wait(launch(kernel, "make_many", words), 120) == 0


# Each attack returns whether it worked.


def signals_by_a_descriptor(node, kernel):
    """The system signals the owner of a descriptor, whatever filter `kill` has."""
    victim = subprocess.Popen(["sleep", "1000"])
    try:
        assert kernel.call(PIPE, At(1024)) == 0
        reader, writer = struct.unpack("<ii", kernel.get(1024, 8))
        kernel.call(FCNTL, reader, F_SETOWN, victim.pid)
        kernel.call(FCNTL, reader, F_SETSIG, signal.SIGKILL)
        kernel.call(FCNTL, reader, F_SETFL, O_ASYNC)
        assert kernel.call(WRITE, writer, kernel.put(1024, b"x"), 1) == 1
        try:
            return victim.wait(1) == -signal.SIGKILL
        except subprocess.TimeoutExpired:
            return False
    finally:
        victim.kill()
        victim.wait()


def opens_a_key_to_others(node, kernel):
    """Makes the key readable for all users of the host."""
    key = node.folder / "key"
    kernel.call(CHMOD, kernel.path(key), 0o644)
    kernel.call(FCHMODAT2, AT_FDCWD, kernel.path(key), 0o644, 0)
    opened = key.stat().st_mode & 0o777 == 0o644
    key.chmod(0o600)
    return opened


def makes_a_file_set_its_user(node, kernel):
    """A descriptor for reading is enough to change the mode of a file. A program of root that has
    this mode gives its rights to everybody."""
    file = readable(node)
    kernel.call(FCHMOD, kernel.open(file), 0o4755)
    changed = file.stat().st_mode & 0o7777 == 0o4755
    file.chmod(0o644)
    return changed


def changes_the_time_of_a_file(node, kernel):
    file = readable(node)
    kernel.call(
        UTIMENSAT, kernel.open(file), 0, kernel.put(1024, struct.pack("<4q", 7, 7, 7, 7)), 0
    )
    return file.stat().st_mtime_ns == 7 * 10**9 + 7


def readable(node):
    """Returns a file that workers may only read."""
    return next(Path(node.env["OCL_ICD_VENDORS"]).glob("*.icd"))


def watches_a_folder(node, kernel):
    """It learns which files of a folder others use."""
    file = kernel.call(INOTIFY_INIT, os.O_NONBLOCK)
    return kernel.call(INOTIFY_ADD_WATCH, file, kernel.path(node.folder), 0xFFF) >= 0


def takes_what_others_need(node, kernel):
    """Linux has 65,536 places for asynchronous reading on the whole host."""
    kernel.put(1024, bytes(8))
    if kernel.call(IO_SETUP, 1, At(1024)) != 0:
        return False
    (place,) = struct.unpack("<q", kernel.get(1024, 8))
    return kernel.call(IO_DESTROY, place) == 0


def observes_the_devices_of_the_host(node, kernel):
    return kernel.call(SOCKET, socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT) >= 0


def sends_to_an_address(node, kernel):
    """A socket that a client hands to a worker could send to the services of the host. The one here
    sends to the kernel."""
    file = kernel.call(SOCKET, socket.AF_NETLINK, socket.SOCK_RAW, 0)
    assert file >= 0
    asked = struct.pack("<IHHII", 20, RTM_GETADDR, NLM_F_REQUEST, 0, 0) + bytes(4)
    text, where = kernel.put(1024, asked), kernel.put(1280, struct.pack("<HHII", 16, 0, 0, 0))
    return kernel.call(SENDTO, file, text, len(asked), 0, where, 12) == len(asked)


def changes_the_priority_of_the_daemon(node, kernel):
    now = os.getpriority(os.PRIO_PROCESS, node.daemon.pid)
    return kernel.call(SETPRIORITY, os.PRIO_PROCESS, node.daemon.pid, now) == 0


def connects_to_a_service_with_a_path(node, kernel):
    path = os.fsencode(node.folder / "service")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        file = kernel.call(SOCKET, socket.AF_UNIX, socket.SOCK_STREAM, 0)
        where = struct.pack("<H", socket.AF_UNIX) + path + b"\0"
        worked = kernel.call(CONNECT, file, kernel.put(512, where), len(where)) == 0
    os.unlink(path)
    return worked


# The level that stops each attack. None does that where it is `nothing`.
STOPPED_BY = {
    signals_by_a_descriptor: "calls",
    opens_a_key_to_others: "calls",
    makes_a_file_set_its_user: "calls",
    changes_the_time_of_a_file: "calls",
    watches_a_folder: "calls",
    takes_what_others_need: "calls",
    observes_the_devices_of_the_host: "calls",
    sends_to_an_address: "calls",
    # Root has rights that its workers give up.
    changes_the_priority_of_the_daemon: "basic" if os.getuid() == 0 else "calls",
    connects_to_a_service_with_a_path: "calls",
}
RANKS = [*LEVELS, "nothing"]


def at_full(level, driver, run):
    """Puts the default level on PoCL into the lane `test`, and the others into `all`."""
    return lane("test" if (level, driver) == ("full", "pocl") else "all")(run)


@contextlib.contextmanager
def vendors_of(driver):
    """Makes a folder with the driver's file, which workers may read. Returns the variables that
    name it."""
    file = {"pocl": Path("/etc/OpenCL/vendors/pocl.icd"), "intel": INTEL / "intel.icd"}[driver]
    with tempfile.TemporaryDirectory(prefix="penstock-vendors.") as folder:
        os.chmod(folder, 0o755)
        shutil.copyfile(file, Path(folder, file.name))
        yield {"OCL_ICD_VENDORS": folder, "OPENCL_VENDOR_PATH": folder}


def escapes_at(level, driver):
    def run(_):
        with vendors_of(driver) as vendors, node_at(level, driver, environment=vendors) as node:
            node.settle()
            kernel = Kernel(node)
            wrong = []
            for attack, stops in STOPPED_BY.items():
                worked = attack(node, kernel)
                if worked != (RANKS.index(level) < RANKS.index(stops)):
                    wrong.append(f"{attack.__name__}: {'worked' if worked else 'failed'}")
            assert not wrong, f"at the level {level}: {', '.join(wrong)}"
            kernel.client.close()
            Client(node).works().close()
            node.must_live()

    run.__name__ = f"kernels_that_escape_{driver}_at_level_{level}"
    return at_full(level, driver, run)


def program_of(process):
    try:
        return os.readlink(f"/proc/{process}/exe")
    except OSError:
        return None


def a_process_that_outlives_its_worker(node):
    """A kernel may start a process as the C library does before it runs a program. If this process
    runs no program, it has all descriptors of the worker: the daemon sees no hang-up, and the
    session would have its place for ever."""
    kernel = Kernel(node)
    worker = kernel.client.worker
    launch(kernel, "leave_a_child", words_of((0, [CLONE, SPAWN]), (48, [PAUSE])))
    # And not the linker, which PoCL starts.
    program = os.readlink(f"/proc/{worker}/exe")
    children = []

    def has_child():
        children[:] = [it for it in tree(worker) if program_of(it) == program]
        return children

    wait_for(has_child, "no process was started")
    kernel.client.close()
    wait_for(lambda: not is_alive(worker), "the worker lives on")
    wait_for(lambda: not any(map(is_alive, children)), f"{children} live on")
    node.settle()


def a_folder_that_is_deeper_than_a_path(node):
    """A kernel nests folders deeper than a path can be long, and than a process can have
    descriptors. What it hides there counts, and the daemon removes all of it."""
    kernel = Kernel(node)
    folder = own_folder(node, kernel.client.worker)
    assert kernel.call(CHDIR, kernel.path(folder / "tmp")) == 0
    kernel.put(0, b"n" * 100 + b"\0")
    # The daemon ends the session as soon as it notices that something is hidden.
    with contextlib.suppress(ConnectionError):
        many(kernel, 20_000, [MKDIR, 0, 0o700], [CHDIR, 0])
        kernel.client.end_of()
    wait_for(lambda: not folder.exists(), f"{folder} is left")
    node.must_live()


def a_folder_that_is_closed(node):
    """A folder without rights for its owner hides its content from the daemon of a user who is not
    root."""
    kernel = Kernel(node)
    folder = own_folder(node, kernel.client.worker)
    closed = folder / "tmp" / "closed"
    assert kernel.call(MKDIR, kernel.path(closed), 0o700) == 0
    assert kernel.call(MKDIR, kernel.path(closed / "inner"), 0) == 0
    kernel.client.close()
    wait_for(lambda: not folder.exists(), f"{folder} is left")


# What is left of each attack is gone soon, from this level on. Without confinement a worker has no
# folder of its own, and a kernel writes where the daemon's user may.
CLEANED_FROM = {
    a_process_that_outlives_its_worker: "off",
    confinement.a_build_without_end: "off",
    a_folder_that_is_deeper_than_a_path: "basic",
    a_folder_that_is_closed: "basic",
    confinement.a_kernel_that_fills_the_disk: "basic",
}


def cleaned_at(level, driver):
    def run(_):
        with node_at(level, driver) as node:
            node.settle()
            rank = LEVELS.index(level)
            attacks = [it for it, least in CLEANED_FROM.items() if LEVELS.index(least) <= rank]
            for attack in attacks:
                attack(node)
                node.must_live()
            return f"{len(attacks)} of {len(CLEANED_FROM)} attacks leave nothing"

    run.__name__ = f"what_kernels_leave_behind_{driver}_at_level_{level}"
    return at_full(level, driver, run)


def a_descriptor_that_the_daemon_was_started_with(_):
    """A file, such as a log or a lock, is open in the process that starts the daemon. No worker has
    it."""
    secret = os.urandom(8)
    with tempfile.TemporaryFile() as file:
        file.write(secret)
        file.flush()
        numbers = [fcntl.fcntl(file, fcntl.F_DUPFD, least) for least in (20, 300)]
        with node_at("full", "pocl", inherited=numbers) as node:
            has = set(os.listdir(f"/proc/{node.daemon.pid}/fd"))
            assert has >= set(map(str, numbers)), f"the daemon itself has {has}"
            kernel = Kernel(node)
            for number in range(3, 400):
                kernel.put(512, bytes(8))
                kernel.call(PREAD, number, At(512), 8, 0)
                assert kernel.get(512, 8) != secret, f"the kernel reads descriptor {number}"
            kernel.client.close()
        for number in numbers:
            os.close(number)


ATTACKS = [a_descriptor_that_the_daemon_was_started_with] + [
    at(level, driver) for at in (escapes_at, cleaned_at) for driver in DRIVERS for level in LEVELS
]

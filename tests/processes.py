"""Information about processes, including those that have just ended, and about what they leave in
shared memory."""

import contextlib
import os
from pathlib import Path


def fields_of(pid):
    """Returns the fields of /proc/PID/stat from the state on, which is its third field; empty if
    there is no such process."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return []


def is_alive(pid):
    return fields_of(pid)[:1] not in ([], ["Z"])


def start_of(pid):
    """Returns when a process began, in ticks since the start of the system, or None. It
    distinguishes processes with the same id."""
    fields = fields_of(pid)
    return int(fields[19]) if fields else None


def cpu_of(pid):
    """Returns the CPU time of a living process in seconds."""
    fields = fields_of(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status_of(pid, *names):
    """Returns the sum of lines of /proc/PID/status in bytes. A process that has just ended has none
    of them."""
    lines = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return sum(int(lines.get(name, "0").split()[0]) * 1024 for name in names)


def children_of(pid):
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def tree(pid):
    """Returns all descendants of a process, without the process itself."""
    found = []
    for child in children_of(pid):
        found.append(child)
        found += tree(child)
    return found


def parent_of(pid):
    fields = fields_of(pid)
    return int(fields[1]) if fields else None


def group(leader):
    """Returns all living processes of a process group, without its leader."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    of_group = [pid for pid in pids if pid != leader and fields_of(pid)[2:3] == [str(leader)]]
    return [pid for pid in of_group if is_alive(pid)]


class Roll:
    """Processes that must have ended at a certain time."""

    def __init__(self):
        self.began = {}

    def add(self, *pids):
        self.began.update((pid, began) for pid in pids if (began := start_of(pid)))

    def left(self):
        return [
            pid for pid, began in self.began.items() if is_alive(pid) and start_of(pid) == began
        ]


def shared_memory():
    """Returns the names of this user's shared memory. Tests that run at the same time may make
    what stays: podman's lock, Open MPI's segments of ranks that were killed, and the folder in
    which `penstock run` makes its own ones."""
    names = os.listdir("/dev/shm") if os.path.exists("/dev/shm") else ()
    return {
        name
        for name in names
        if is_ours(name)
        and not name.startswith(("libpod_", "vader_segment."))
        and not os.path.isdir(f"/dev/shm/{name}")
    }


def left_memory(before):
    """Returns new shared memory that no process maps. Other programs may have created some, too,
    but map it while they live."""
    found = sorted(shared_memory() - before)
    mapped = "" if not found else "".join(map(maps_of, Path("/proc").glob("[0-9]*/maps")))
    return [name for name in found if f"/dev/shm/{name}" not in mapped]


def maps_of(path):
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def is_ours(name):
    with contextlib.suppress(OSError):
        return os.stat(f"/dev/shm/{name}").st_uid == os.getuid()
    return False

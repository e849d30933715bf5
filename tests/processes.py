"""What the system tells of processes, also of those that have just ended, and what they may leave in shared memory."""

import contextlib
import os
from pathlib import Path


def fields_of(pid):
    """/proc/PID/stat from the state on, which is its third field; empty where there is no such process."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return []


def is_alive(pid):
    return fields_of(pid)[:1] not in ([], ["Z"])


def start_of(pid):
    """When a process began, in ticks since the start of the system; None if there is none. Numbers of processes are used again."""
    fields = fields_of(pid)
    return int(fields[19]) if fields else None


def cpu_of(pid):
    """CPU time of a process that lives, in seconds."""
    fields = fields_of(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status_of(pid, *names):
    """Sum of lines of /proc/PID/status, in bytes; a process that has just ended has none of them."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(lines.get(name, "0").split()[0]) * 1024 for name in names)


def children_of(pid):
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def tree(pid):
    """All processes below, without the first."""
    found = []
    for child in children_of(pid):
        found.append(child)
        found += tree(child)
    return found


class Roll:
    """Processes that must have ended when something has."""

    def __init__(self):
        self.began = {}

    def add(self, *pids):
        self.began.update((pid, began) for pid in pids if (began := start_of(pid)))

    def left(self):
        return [pid for pid, began in self.began.items() if is_alive(pid) and start_of(pid) == began]


def shared_memory():
    """Named shared memory of this user."""
    return {name for name in (os.listdir("/dev/shm") if os.path.exists("/dev/shm") else ()) if is_ours(name)}


def left_memory(before):
    """What is new and nobody's: other programs of this machine may have made some, too, and map it while they live."""
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

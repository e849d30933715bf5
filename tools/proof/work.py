"""Runs one job: a command with a limit of time, all of whose processes end with it."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

# All processes of a job carry this variable, also those that have left its process group.
MARK = "PENSTOCK_TEST_JOB"
ENDED_BY_LIMIT = -1
# Processes of a job that has ended may be about to end, too. One that stays is a leak.
LEAVING_S = 10
# A process that hides its environment may hold the pipe of a job that has ended.
READER_S = 5


def slowness():
    """Returns by how much this host may be slower than one on which nothing waits."""
    return max(1.0, float(os.environ.get("PENSTOCK_TEST_SLOWNESS", "1")))


# Time between two looks at the host.
LOOK_S = 5
# Share of the cores' time that one more stage may need.
SPARE_SHARE = 0.2


# What a container may use of the cores' time. The first word is `max` if there is no limit.
QUOTA = Path("/sys/fs/cgroup/cpu.max")


class Host:
    """How much time the cores have left that this process may use, whoever uses them."""

    def __init__(self):
        self.begin()

    def begin(self):
        """Begins a look. The next answer is LOOK_S later, and tells of the time until then."""
        self.looked, self.before = time.monotonic(), self.times()

    @staticmethod
    def times():
        """Returns the time in which the cores did nothing, and all time, in ticks; zeros if the
        system does not tell."""
        cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        idle = total = 0
        with contextlib.suppress(OSError):
            for line in Path("/proc/stat").read_text().splitlines():
                name, *ticks = line.split()
                if name in cores:
                    idle += int(ticks[3])
                    total += sum(map(int, ticks[:8]))
        return idle, total

    def has_time(self):
        """Whether the cores had time left during the look that ends now. Answers no before its end
        and under a quota, which a busy host does not show."""
        if time.monotonic() < self.looked + LOOK_S or self.has_quota():
            return False
        (was_idle, was_all), (idle, total) = self.before, self.times()
        self.begin()
        return idle - was_idle > SPARE_SHARE * max(total - was_all, 1)

    @staticmethod
    def has_quota():
        try:
            return not QUOTA.read_text().startswith("max")
        except OSError:
            return False


def marked(mark):
    """Returns the processes whose environment has this mark."""
    found, word = [], f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def stacks(pids):
    """Returns what each thread of these processes is waiting for, as far as Linux tells."""
    lines = []
    for pid in pids:
        with contextlib.suppress(OSError):
            words = (
                Path(f"/proc/{pid}/cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode("utf8", "replace")
            )
            lines.append(f"process {pid}: {words[:200]}")
        for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
            with contextlib.suppress(OSError):
                name = (task / "comm").read_text().strip()
                waits = (task / "wchan").read_text().strip()
                call = (task / "syscall").read_text().split(" ", 1)[0].strip()
                lines.append(f"  thread {task.name} {name}: in {waits or '?'}, system call {call}")
            with contextlib.suppress(OSError):
                lines += [f"    {line}" for line in (task / "stack").read_text().splitlines()[:6]]
    return lines


def end_all(mark):
    """Ends all processes with this mark."""
    for _ in range(5):
        left = marked(mark)
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def end_leaked(mark):
    """Ends the processes with this mark that do not end by themselves. Returns what they did."""
    end = time.monotonic() + LEAVING_S * slowness()
    while left := marked(mark):
        if time.monotonic() > end:
            told = stacks(left)
            end_all(mark)
            return told
        time.sleep(0.05)
    return []


class Ended:
    """How a job ended: its exit code, the seconds of wall and CPU time, what its leaked processes
    did, and what its processes did at its limit of time."""

    def __init__(self, code, wall, cpu, left, hang):
        self.code, self.wall, self.cpu, self.left, self.hang = code, wall, cpu, left, hang


RUNNING = {}
RUNNING_LOCK = threading.Lock()
# No job starts any more.
STOPPED = threading.Event()


class Job:
    """A command that runs. `take` gets each line of its output."""

    def __init__(self, name, command, limit_s, environment, take):
        if STOPPED.is_set():
            raise RuntimeError("the run ends")
        self.name, self.limit_s, self.take = name, limit_s * slowness(), take
        self.mark = uuid.uuid4().hex
        self.began = time.monotonic()
        self.hang = []
        self.process = subprocess.Popen(
            command,
            env=os.environ | environment | {MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with RUNNING_LOCK:
            RUNNING[self.mark] = self

    def stop(self, why):
        """Ends all processes of the job, and keeps what they were waiting for."""
        pids = marked(self.mark)
        self.hang = [f"{self.name}: {why}", *stacks(pids)]
        end_all(self.mark)
        # The first process has no mark before it runs its program.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def read(self):
        for line in self.process.stdout:
            self.take(line.decode("utf8", "replace").rstrip("\n"))

    def finish(self):
        """Waits until the job has ended."""
        timer = threading.Timer(
            self.limit_s, self.stop, [f"ended after its limit of {self.limit_s:.0f} s"]
        )
        timer.daemon = True
        timer.start()
        reader = threading.Thread(target=self.read, daemon=True)
        reader.start()
        _, status, used = os.wait4(self.process.pid, 0)
        timer.cancel()
        timer.join()
        # The job has ended, and what it has left behind must not disturb the next one.
        left = [] if self.hang else end_leaked(self.mark)
        reader.join(READER_S)
        with RUNNING_LOCK:
            del RUNNING[self.mark]
        code = ENDED_BY_LIMIT if self.hang else os.waitstatus_to_exitcode(status)
        self.process.returncode = code
        return Ended(
            code, time.monotonic() - self.began, used.ru_utime + used.ru_stime, left, self.hang
        )

    @staticmethod
    def stop_all(why):
        STOPPED.set()
        with RUNNING_LOCK:
            jobs = list(RUNNING.values())
        for job in jobs:
            job.stop(why)
        return [job.name for job in jobs]


def end_at_signals():
    """Makes SIGINT and SIGTERM end all jobs before this process."""

    def end(number, _):
        Job.stop_all("the run was ended by a signal")
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def watch(limit_s):
    """Ends the whole run after `limit_s` seconds, and says what was still running."""

    def end():
        names = Job.stop_all("the whole run took too long")
        running = ", ".join(names) or "nothing"
        print(f"FAIL the run was ended after {limit_s:.0f} s; still running: {running}", flush=True)
        # The jobs end now, and their stages fail. What waits for something else must not stay.
        time.sleep(30)
        sys.stdout.flush()
        os._exit(3)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()

"""Runs programs with a limit of time. When a program ends, its whole process group ends."""

import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

# Bytes at the beginning and at the end of a log that are kept.
LOG_BYTES_MAX = 200_000
# Time in which a killed process must be gone. A process inside a driver may be longer on its way.
GONE_S = 5


@dataclass
class Result:
    """What became of a program. The code is None if its time was over, and the negative number of
    a signal if that ended it."""

    code: int | None
    seconds: float
    text: str

    @property
    def is_good(self):
        return self.code == 0

    def tail(self, lines=12, width=220):
        kept = [line[:width] for line in self.text.splitlines() if line.strip()]
        return "\n".join(kept[-lines:])

    def last(self, width=140):
        return self.tail(1, width)

    def why(self):
        if self.code is None:
            return f"still running after {self.seconds:.0f} s"
        if self.code < 0:
            return f"ended by signal {-self.code}"
        return f"ended with code {self.code}"


def end_group(process):
    """Kills the process group of a program, and waits until the program is gone."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.wait(GONE_S)
    except subprocess.TimeoutExpired:
        pass


def read(path):
    """Returns the text of a log, without its middle if it is long."""
    data = Path(path).read_bytes()
    if len(data) > LOG_BYTES_MAX:
        half = LOG_BYTES_MAX // 2
        data = data[:half] + b"\n[...]\n" + data[-half:]
    return data.decode(errors="replace")


class Program:
    """A program that runs while others do, with its output in a file."""

    def __init__(self, command, env, log, folder=None, stdin=subprocess.DEVNULL):
        self.log, self.began = Path(log), time.monotonic()
        self.process, self.error = None, None
        with open(self.log, "wb") as out:
            try:
                self.process = subprocess.Popen(
                    [str(word) for word in command],
                    env=env,
                    cwd=folder,
                    stdin=stdin,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                self.error = str(error)

    def wait(self, limit_s):
        """Waits for the end of the program, ends it if its time is over, and returns the result."""
        if self.process is None:
            return Result(127, 0.0, self.error)
        code = None
        try:
            code = self.process.wait(max(limit_s, 0.1))
        except subprocess.TimeoutExpired:
            pass
        seconds = time.monotonic() - self.began
        end_group(self.process)
        return Result(code, seconds, read(self.log))

    def has_said(self, text, limit_s):
        """Waits until the program has printed a text. Returns whether it has."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if text in read(self.log):
                return True
            if self.process is None or self.process.poll() is not None:
                return text in read(self.log)
            time.sleep(0.02)
        return False


def side_by_side(jobs, count):
    """Calls functions without arguments, `count` of them at a time, in the order of the list."""
    waiting, lock = list(jobs), threading.Lock()

    def work():
        while True:
            with lock:
                if not waiting:
                    return
                job = waiting.pop(0)
            job()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(max(count, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

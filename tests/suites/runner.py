"""Runs the tests of one file through `penstock run`, and reads what becomes of each.

A test that makes no progress within its limit of time is ended with its process, and another
process runs the rest of the file. So no test can keep the others from running.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

WORST = ("skipped", "passed", "failed")


@dataclass
class Outcome:
    verdict: str
    message: str = ""


@dataclass
class Progress:
    """What the record of a process says so far. recorder.py says what it contains; `size` is what
    the programs of CUB and Thrust add."""

    outcomes: dict = field(default_factory=dict)
    running: str | None = None
    size: str = ""

    def read(self, path):
        for line in complete_lines(path):
            kind, *rest = json.loads(line)
            if kind == "begin":
                self.running = rest[0]
            elif kind == "size":
                self.size = f"at size {rest[0]}"
            elif kind == "report":
                self.report(*rest)
            elif kind == "end":
                self.running = None
        return self

    def report(self, test, verdict, message):
        """Adds one report. A test has several if it has subtests; the worst one counts."""
        known = self.outcomes.get(test)
        if known is None or WORST.index(verdict) > WORST.index(known.verdict):
            self.outcomes[test] = Outcome(verdict, message if verdict != "passed" else "")


def complete_lines(path):
    with contextlib.suppress(FileNotFoundError):
        return [line for line in path.read_text().splitlines(True) if line.endswith("\n")]
    return []


@dataclass
class Runner:
    """How the tests of a suite are started, and the longest time between two lines of a record."""

    penstock: Path
    environment: dict
    folder: Path
    limit_s: float

    def run_file(self, command, name):
        """Runs all tests of one file. Returns the outcome of each."""
        outcomes, done = {}, self.folder / f"{name}.done"
        (self.folder / f"{name}.log").unlink(missing_ok=True)
        while True:
            done.write_text("".join(f"{test}\n" for test in outcomes))
            progress, verdict = self.run_rest(command, name, done)
            outcomes.update(progress.outcomes)
            if verdict is None:
                return outcomes
            test = progress.running
            if test is None:
                # It ended before its tests or after them, so another process would do the same.
                outcomes[f"{name}::(process)"] = Outcome(verdict)
                return outcomes
            # A test may have reported its failure before it ended its process.
            if test not in outcomes or outcomes[test].verdict != "failed":
                outcomes[test] = Outcome(verdict, progress.size)

    def run_rest(self, command, name, done):
        """Runs the tests that have not run. Returns what became of them, and how the process ended
        if it did not run them all."""
        record = self.folder / f"{name}.record"
        record.unlink(missing_ok=True)
        environment = self.environment | {
            "PENSTOCK_SUITE_RECORD": str(record),
            "PENSTOCK_SUITE_DONE": str(done),
        }
        with open(self.folder / f"{name}.log", "a") as log:
            process = subprocess.Popen(
                [self.penstock, "run", "--", *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )
            ended = self.wait(process, record)
        progress = Progress().read(record)
        if not ended:
            return progress, "without end"
        # pytest ends with 0 to 5. A test that runs when the process ends has ended it.
        if process.returncode not in range(6) or progress.running is not None:
            return progress, "crashed"
        return progress, None

    def wait(self, process, record):
        """Waits for the end of a process. Kills it if its record does not grow within the limit.
        Returns whether it ended by itself."""
        size, since = -1, time.monotonic()
        try:
            while process.poll() is None:
                now = record.stat().st_size if record.exists() else 0
                if now != size:
                    size, since = now, time.monotonic()
                if time.monotonic() - since > self.limit_s:
                    return False
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.2)
            return True
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

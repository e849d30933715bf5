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
    the programs of CUB and Thrust add. `collected` is the number of cases that the process was to
    run."""

    outcomes: dict = field(default_factory=dict)
    ended: list = field(default_factory=list)
    collected: int | None = None
    running: str | None = None
    size: str = ""

    def read(self, path):
        for line in complete_lines(path):
            kind, *rest = json.loads(line)
            if kind == "collected":
                self.collected = rest[0]
            elif kind == "begin":
                self.running = rest[0]
            elif kind == "size":
                self.size = f"at size {rest[0]}"
            elif kind == "report":
                self.report(*rest)
            elif kind == "end":
                self.running = None
                self.ended.append(rest[0])
        return self

    def report(self, test, verdict, message):
        """Adds one report. A test has several if it has subtests; the worst one counts."""
        known = self.outcomes.get(test)
        if known is None or WORST.index(verdict) > WORST.index(known.verdict):
            self.outcomes[test] = Outcome(verdict, message if verdict != "passed" else "")

    def fault(self, code, has_before):
        """Returns what is wrong if a process with this exit code did not judge each of its cases,
        or None. `has_before`: whether other processes ran cases of the same file."""
        if self.collected is None:
            return f"it ended with {code} before it said how many cases it has"
        # pytest ends with 0 or 1 after it ran tests, and with 5 if there were none.
        if code not in (0, 1) and not (code == 5 and self.collected == 0):
            return f"it ended with {code}"
        if self.collected == 0 and not has_before and not self.outcomes:
            return "it has no cases"
        judged = sum(test in self.outcomes for test in self.ended)
        if judged != self.collected:
            return f"it judged {judged} of {self.collected} cases"
        return None


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
            progress, verdict, fault = self.run_rest(command, name, done, bool(outcomes))
            outcomes.update(progress.outcomes)
            if verdict is None:
                return outcomes
            test = progress.running
            if test is None:
                # It ended before its tests or after them, so another process would do the same.
                outcomes[f"{name}::(process)"] = Outcome(verdict, fault)
                return outcomes
            # A test may have reported its failure before it ended its process.
            if test not in outcomes or outcomes[test].verdict != "failed":
                outcomes[test] = Outcome(verdict, progress.size)

    def run_rest(self, command, name, done, has_before):
        """Runs the tests that have not run. Returns what became of them, and how the process ended
        and why that is wrong if it did not run them all."""
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
            return progress, "without end", ""
        # A test that runs when the process ends has ended it.
        if progress.running is not None:
            return progress, "crashed", ""
        fault = progress.fault(process.returncode, has_before)
        return progress, "failed" if fault else None, fault or ""

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

"""Counts the cases of a test program, prints one line for each, and ends a case that hangs.

    count = Tally("faults")
    count.plan(12)
    with count.case("fault/worker killed") as case:
        case.note = kill_workers()
    sys.exit(count.end())

Each case adds a line to the file that TEST_TALLY names: `PASSED FAILED SKIPPED`, the name, the
seconds and the runner, separated by tabs. Before them stands `plan`, the number of lines that will
come, and the runner, so that a runner that dies early is noticed. With
TEST_PLANT=RUNNER the runner runs one case that fails in place of its own; with
TEST_PLANT=RUNNER:hang this case hangs.
"""

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

from patience import CASE_S, PATIENCE_S
from processes import tree

# What a case starts has this variable, unless it is a daemon of the system that starts it.
MARK = "TEST_RUNNER"
# A planted hang need not take the time of a real one.
PLANTED_S = 3


class Skipped(Exception):
    """The case cannot be tested on this host."""


class TimeLimit(BaseException):
    """The case has reached its limit of time. No handler of ordinary errors takes it."""


class Case:
    def __init__(self, name):
        self.name, self.note, self.verdict = name, "", "ok"
        self.began = time.monotonic()

    @property
    def failed(self):
        return self.verdict == "FAIL"


class Tally:
    def __init__(self, runner):
        self.runner, self.passed, self.failed, self.skipped = runner, 0, 0, 0
        name, _, how = os.environ.get("TEST_PLANT", "").partition(":")
        self.planted = (how or "fail") if name in (runner, "all") else ""
        os.environ[MARK] = f"{runner}-{os.getpid()}"

    def plan(self, count):
        """Announces the number of cases. A planted case runs in place of all of them."""
        self.write(f"plan\t{1 if self.planted else count}\t{self.runner}")
        if self.planted:
            with self.case(f"{self.runner}/planted", PLANTED_S):
                if self.planted == "hang":
                    subprocess.run(["setsid", "--wait", "sleep", "1000"], check=True)
                raise AssertionError("this case is planted, and fails")
            sys.exit(self.end())

    def write(self, line):
        if tally := os.environ.get("TEST_TALLY"):
            with open(tally, "a") as file:
                file.write(f"{line}\n")

    @contextlib.contextmanager
    def case(self, name, limit_s=CASE_S):
        """Runs the block as one case. An error fails it, and `Skipped` skips it. At its limit of
        time, what it has started is ended."""
        case, before = Case(name), processes()
        old = signal.signal(signal.SIGALRM, lambda *_: self.limit(case, before, limit_s))
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        try:
            yield case
        except Skipped as why:
            case.verdict, case.note = "skip", f"SKIPPED: {why}"
        except TimeLimit as limit:
            case.verdict, case.note = "FAIL", str(limit)
        except Exception as failure:
            case.verdict, case.note = "FAIL", told(failure)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
        self.add(case)

    def limit(self, case, before, limit_s):
        """Ends what a case has started, and then the case. If that cannot end either, the runner
        ends."""
        case.note = f"still running at its limit of {limit_s:.0f} s"
        print(f"        | {case.name}: {case.note}; the stacks of this runner:", flush=True)
        faulthandler.dump_traceback(sys.stdout, all_threads=True)

        def last(*_):
            case.verdict = "FAIL"
            self.add(case)
            end_all(before)
            os._exit(1)

        signal.signal(signal.SIGALRM, last)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
        end_all(before)
        raise TimeLimit(case.note)

    def add(self, case):
        """Counts a case, and prints its line."""
        at = ("ok", "FAIL", "skip").index(case.verdict)
        counts = [int(at == place) for place in range(3)]
        self.passed, self.failed = self.passed + counts[0], self.failed + counts[1]
        self.skipped += counts[2]
        took = time.monotonic() - case.began
        print(f"{case.verdict:<4} {case.name:<52} {took:6.1f} s  {case.note}".rstrip(), flush=True)
        words = " ".join(map(str, counts))
        self.write(f"{words}\t{case.name}\t{took:.1f}\t{self.runner}")

    def end(self):
        """Prints the counts. Returns the exit status."""
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        return 1 if self.failed else 0


def processes():
    return {int(path.name) for path in Path("/proc").glob("[0-9]*")}


def is_ours(pid):
    """Returns whether a process, or one that started it and has ended, was started by this one."""
    with contextlib.suppress(OSError):
        mark = f"{MARK}={os.environ[MARK]}".encode()
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def end_all(before):
    """Ends what this process has started and what is not in `before`."""
    children = set(tree(os.getpid()))
    for pid in processes() - before:
        if pid in children or is_ours(pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def told(failure):
    """Returns what an error says, and where it arose."""
    where = traceback.extract_tb(failure.__traceback__)[-1]
    what = str(failure)[:4000] or type(failure).__name__
    if not isinstance(failure, AssertionError):
        what = f"{type(failure).__name__}: {what}"
    return f"{what} ({Path(where.filename).name}:{where.lineno})"


def part_of(cases, words):
    """Takes `--part N/OF` from the words of a command line. Returns the cases of this part, so that
    several runs can share them, and the other words."""
    if words[:1] != ["--part"]:
        return cases, words
    part, of = map(int, words[1].split("/"))
    return cases[part - 1 :: of], words[2:]

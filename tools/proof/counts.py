"""The results of cases: how jobs tell them, how they are kept, and what is missing among them.

A job appends lines to the file that TEST_TALLY names:

    plan<TAB>COUNT<TAB>NAME                      at its start: how many result lines will come
    PASSED FAILED SKIPPED<TAB>NAME<TAB>SECONDS   a result line, after each case

A program with several checks is one result line with the counts of its checks.
"""

import json
import os
import subprocess
import time
from dataclasses import dataclass, field

# A stage that needs more than this share of its budget of CPU time is reported.
BUDGET_SHARE = 1.5


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    @property
    def all(self):
        return self.passed + self.failed + self.skipped

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


@dataclass
class Tally:
    """What one job has told."""

    counts: Counts = field(default_factory=Counts)
    planned: int | None = None
    # The names of the cases that failed, and of all.
    failures: list = field(default_factory=list)
    names: list = field(default_factory=list)

    def fail(self, name):
        """Adds a failure that the job has not told."""
        self.counts.failed += 1
        self.failures.append(name)
        self.names.append(name)

    def complaint(self):
        """Returns why the job cannot be believed, or None."""
        if self.planned is None:
            return "told no plan of its cases"
        if self.counts.all == 0:
            return "told no results"
        if len(self.names) < self.planned:
            return f"told {len(self.names)} of {self.planned} results"
        return None


def read(file):
    tally = Tally()
    for line in file.read_text().splitlines() if file.exists() else []:
        words = line.split("\t")
        if words[0] == "plan":
            tally.planned = (tally.planned or 0) + int(words[1])
            continue
        counts = Counts(*map(int, words[0].split()))
        tally.counts.add(counts)
        name = words[1] if len(words) > 1 else "?"
        tally.names.append(name)
        if counts.failed:
            tally.failures.append(name)
    return tally


@dataclass
class StageResult:
    name: str
    counts: Counts = field(default_factory=Counts)
    wall_s: float = 0.0
    cpu_s: float = 0.0
    failures: list = field(default_factory=list)
    names: list = field(default_factory=list)

    def line(self, budget):
        times = f"{self.wall_s:>8.1f} s {self.cpu_s:>8.1f} s of CPU time"
        text = f"{self.name:<11} {times}   {self.counts}"
        if budget and self.cpu_s > BUDGET_SHARE * budget:
            text += f"   OVER ITS BUDGET of {budget} s"
        return text


def git(*arguments):
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def sources():
    """Returns which sources are there: the commit, and whether nothing else has changed."""
    return {
        "commit": git("rev-parse", "HEAD"),
        "clean": git("status", "--porcelain") == "",
    }


def write_proof(file, proven, results, total, budgets):
    """Writes what was proven of which sources. They must not have changed meanwhile."""
    proof = proven | {
        "unchanged": sources().items() <= proven.items(),
        "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cores": os.cpu_count(),
        "passed": total.passed,
        "failed": total.failed,
        "skipped": total.skipped,
        "cpu_s": round(sum(result.cpu_s for result in results), 1),
        "stages": {
            result.name: {
                "passed": result.counts.passed,
                "failed": result.counts.failed,
                "skipped": result.counts.skipped,
                "wall_s": round(result.wall_s, 1),
                "cpu_s": round(result.cpu_s, 1),
                "cpu_budget_s": budgets.get(result.name),
                "failures": result.failures,
            }
            for result in results
        },
    }
    file.write_text(json.dumps(proof, indent=2) + "\n")


def repetition_table(rounds):
    """Returns the lines of a table: each case that failed, in how many of its runs."""
    runs, failures = {}, {}
    for results in rounds:
        for result in results:
            for name in result.names:
                runs[name] = runs.get(name, 0) + 1
            for name in result.failures:
                failures[name] = failures.get(name, 0) + 1
    lines = [f"{'case':<60} {'runs':>5} {'failures':>9}"]
    for name, count in sorted(failures.items(), key=lambda item: -item[1]):
        lines.append(f"{name:<60} {runs.get(name, count):>5} {count:>9}")
    lines.append(f"{len(runs)} cases, {sum(runs.values())} runs, {sum(failures.values())} failures")
    return lines

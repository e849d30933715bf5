#!/usr/bin/env python3
"""Runs the tests of the crates, as `cargo test --workspace` does, in groups.

    tools/cargo-tests.py GROUP [OPTION...]       options for cargo, such as -p penstock-wire

GROUP  pure   programs that use no device and no daemon
       rest   all others
       all    both
       long   the tests that are ignored by default because they take long
       perf   the tests that are ignored by default because they judge time, rates or shares

Prints one line per program. Writes the output of each program to TEST_LOGS (target/test-logs), and
its counts to TEST_TALLY, as tools/proof/counts.py reads them. Exits with 1 if a test failed or a
crate did not build. TEST_PROFILE names the profile of cargo (proof).

A test that cannot check on this host all that it should calls `penstock_trial::skip`, and counts as
skipped. The reasons stand below the line of the program.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

# A test that takes this long hangs. The limit of a program is one of silence: it counts from the
# last test of the program that has ended.
SLOWNESS = max(1.0, float(os.environ.get("PENSTOCK_TEST_SLOWNESS", "1")))
TEST_LIMIT_S = 180 * SLOWNESS
# The longest test of the group `long` kills 300 processes, one by one, which takes minutes.
LONG_LIMIT_S = 1800 * SLOWNESS
# Time for the last output of a program that has ended.
READER_S = 5
OUTPUT_LINES_SHOWN = 60
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;", re.MULTILINE)
PASSED = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. ok", re.MULTILINE)
FAILED = re.compile(r"^test (\S+)(?: - .*)? \.\.\. FAILED", re.MULTILINE)
ENDED = re.compile(r"^test (\S+)(?: - .*)? \.\.\. ", re.MULTILINE)
# With one thread, tests would run in a thread without their name, which tells which test is skipped.
TEST_THREADS = str(max(2, os.cpu_count() or 1))
PROFILE = os.environ.get("TEST_PROFILE", "proof")
# The programs of the group `pure`: the tests inside the crates, and the programs in their folders
# `tests` with these names, in each crate that has them.
PURE = "documentation errors layers library pure refusals signatures summary world".split()
# What runs in place of all tests, to show that a failure and a hang are seen.
PLANTED = {
    "all": ["sh", "-c", "echo test planted ... FAILED; exit 101"],
    "all:hang": ["sleep", "1000"],
}
if os.environ.get("TEST_PLANT"):
    TEST_LIMIT_S = LONG_LIMIT_S = 3
IGNORED = {"long": "long_", "perf": "perf_"}
printing = threading.Lock()


def is_pure(crate, program):
    return program in (crate, *PURE)


def programs(options):
    """Returns the test programs as (crate, name, file, crate's folder)."""
    command = ["cargo", "test", "--profile", PROFILE, *options]
    command += ["--no-run", "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        return None, built.stderr
    messages = (json.loads(line) for line in built.stdout.splitlines() if line.startswith("{"))
    found = []
    for it in messages:
        if it.get("reason") == "compiler-artifact" and it["profile"]["test"] and it["executable"]:
            folder = pathlib.Path(it["manifest_path"]).parent
            own = "test" not in it["target"]["kind"]
            name = folder.name if own else it["target"]["name"]
            found.append((folder.name, name, it["executable"], folder))
    return sorted(found), ""


def without_skipped(counts, output, skips):
    """Moves the tests of the list `skips` from the passed ones to the skipped ones.

    Returns the counts, and a line for each skipped test. A skip that belongs to no test is a
    failure, because it would leave a test that checks less among the passed ones.
    """
    passed, failed, skipped = counts
    good, lines = set(PASSED.findall(output)), []
    for test, reasons in skips.items():
        if test in good:
            passed, skipped = passed - 1, skipped + 1
            lines.append(f"skipped: {test}: {'; '.join(sorted(reasons))}")
        elif not re.search(rf"^test {re.escape(test)}\b", output, re.MULTILINE):
            failed += 1
            lines.append(f"skipped, but not in the thread of a test: {test}: {'; '.join(reasons)}")
    return [passed, failed, skipped], lines


def read_skips(file):
    """Returns the reasons of each test of a list that `penstock_trial::skip` wrote."""
    skips = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        test, need, why = line.split("\t", 2)
        skips.setdefault(test, set()).add(f"{why} ({need})")
    return skips


class Report:
    """Where results go: lines, logs and the tally."""

    def __init__(self):
        target = os.environ.get("CARGO_TARGET_DIR", "target")
        self.logs = pathlib.Path(os.environ.get("TEST_LOGS", pathlib.Path(target, "test-logs")))
        self.logs.mkdir(parents=True, exist_ok=True)
        self.tally = os.environ.get("TEST_TALLY")
        self.sum = [0, 0, 0]

    def told(self, text):
        if self.tally:
            with open(self.tally, "a") as file:
                print(text, file=file)

    def plan(self, count, name):
        self.told(f"plan\t{count}\t{name}")

    def program(self, name, began, ended, skips):
        """Prints the line of one program and adds its counts."""
        took = time.monotonic() - began
        output, code = ended.output, ended.code
        (self.logs / f"cargo-{name.replace('/', '-')}.log").write_text(output)
        results = RESULT.findall(output)
        # Ignored tests belong to another lane.
        counts = [sum(int(found[at]) for found in results) for at in range(2)] + [0]
        counts, lines = without_skipped(counts, output, skips)
        failures = FAILED.findall(output)
        # A program that crashed reports no result for its last test. A program that reports nothing
        # that is understood here would not be counted at all.
        if (code != 0 or not results) and counts[1] == 0:
            counts[1] = 1
        with printing:
            self.sum = [a + b for a, b in zip(self.sum, counts, strict=True)]
            if sum(counts):
                words = "{} passed, {} failed, {} skipped".format(*counts)
                words += f"; {ended.cpu_s:.1f} s of CPU time" if ended.cpu_s is not None else ""
                verdict = "FAIL" if counts[1] else "ok"
                print(f"{verdict:<4} {'cargo/' + name:<32} {took:>7.1f} s  {words}", flush=True)
            if counts[1]:
                said = output.splitlines()
                said = [it for it in said if it and not re.match(r"test .* ok$", it)]
                lines += said[-OUTPUT_LINES_SHOWN:]
            for text in lines:
                print(f"        | {text}", flush=True)
            named = failures[: counts[1]]
            for failure in named:
                self.told(f"0 1 0\tcargo/{name}::{failure}\t0")
            rest = [counts[0], counts[1] - len(named), counts[2]]
            self.told("{} {} {}\tcargo/".format(*rest) + f"{name}\t{took:.1f}")


@dataclass
class Ended:
    output: str
    code: int
    # Also of the processes for which the program has waited.
    cpu_s: float | None = None


class Watched:
    """A program whose tests must end, each within a limit of time."""

    def __init__(self, command, folder, environment, limit_s):
        self.command, self.limit_s = command, limit_s
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.lines, self.heard, self.hangs = [], time.monotonic(), False

    def ended(self):
        """Waits for the program's end."""
        ended = threading.Event()
        watch = threading.Thread(target=self.watch, args=[ended], daemon=True)
        watch.start()
        reader = threading.Thread(target=self.read, daemon=True)
        reader.start()
        _, status, used = os.wait4(self.process.pid, 0)
        code = self.process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        # What the program has left behind may hold the pipe.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        reader.join(READER_S)
        if self.hangs:
            code = -signal.SIGKILL
            self.lines.append(
                f"\nended, because no test ended for {self.limit_s:.0f} s; not ended: "
            )
            self.lines.append(", ".join(self.unfinished()) + "\n")
        return Ended("".join(self.lines), code, used.ru_utime + used.ru_stime)

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            if ENDED.match(line):
                self.heard = time.monotonic()

    def watch(self, ended):
        while not ended.wait(1):
            if time.monotonic() - self.heard > self.limit_s:
                self.hangs = True
                os.killpg(self.process.pid, signal.SIGKILL)
                return

    def unfinished(self):
        """Returns the tests of the program that have not ended."""
        listed = subprocess.run(
            [*self.command, "--list", "--format", "terse"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        names = [it.removesuffix(": test") for it in listed.splitlines() if it.endswith(": test")]
        done = set(ENDED.findall("".join(self.lines)))
        return [name for name in names if name not in done]


def run(name, command, folder, report, extra):
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-skips.") as place:
        skips = pathlib.Path(place, "list")
        environment = dict(
            os.environ,
            CARGO_MANIFEST_DIR=str(folder),
            PENSTOCK_TEST_SKIPS=str(skips),
            # Open MPI's launchers fail if one removes a folder while another one makes it.
            OMPI_MCA_orte_tmpdir_base=place,
            RUST_TEST_THREADS=TEST_THREADS,
        )
        limit_s = LONG_LIMIT_S if IGNORED["long"] in extra else TEST_LIMIT_S
        ended = Watched([*command, *extra], folder, environment, limit_s).ended()
        report.program(name, began, ended, read_skips(skips))


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in ("pure", "rest", "all", *IGNORED):
        sys.exit(__doc__)
    group, options = sys.argv[1], sys.argv[2:] or ["--workspace"]
    report, began = Report(), time.monotonic()
    if planted := PLANTED.get(os.environ.get("TEST_PLANT", "")):
        report.plan(1, group)
        run("planted", planted, pathlib.Path.cwd(), report, [])
        sys.exit(1 if report.sum[1] else 0)
    tests, complaint = programs(options)
    if tests is None:
        report.plan(1, "build")
        report.program("build", began, Ended(complaint, 1), {})
        sys.exit(1)
    if group in ("pure", "rest"):
        tests = [it for it in tests if is_pure(it[0], it[1]) == (group == "pure")]
    with_documents = group in ("rest", "all") and not {"--test", "--lib"} & set(options)
    report.plan(len(tests) + with_documents, group)
    extra = [IGNORED[group], "--ignored"] if group in IGNORED else []
    with ThreadPoolExecutor(1 if group == "perf" else os.cpu_count()) as pool:
        jobs = [
            pool.submit(run, f"{crate}/{name}", [file], folder, report, extra)
            for crate, name, file, folder in tests
        ]
        for job in jobs:
            job.result()
    if with_documents:
        documents = ["cargo", "test", "--profile", PROFILE, *options, "--doc"]
        # It checks the documentation, too.
        os.environ["RUSTDOC"] = str(pathlib.Path(__file__).parent.resolve() / "proof/rustdoc.sh")
        run("documents", documents, pathlib.Path.cwd(), report, [])
    print("{} passed, {} failed, {} skipped".format(*report.sum))
    sys.exit(1 if report.sum[1] else 0)


if __name__ == "__main__":
    main()

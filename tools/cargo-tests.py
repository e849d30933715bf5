#!/usr/bin/env python3
"""Runs the tests of all crates, as `cargo test --workspace` does, but several programs at a time,
because many tests wait more than they work.

    tools/cargo-tests.py LOGS TALLY [OPTION...]       options for cargo, such as -p penstock-wire

Prints one line per program. Writes the output of each program to LOGS and its counts to TALLY.
Exits with 1 if a test failed or a crate did not build.

A test that cannot check on this host all that it should calls `penstock_trial::skip`, and counts as
skipped. The reasons stand below the line of the program.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

# One more than the number of cores, because most slow tests sleep.
AT_A_TIME = (os.cpu_count() or 1) + 1
# On a quiet machine, no program of ours takes a minute. A program that takes this long hangs.
SECONDS_MAX = 600
OUTPUT_LINES_SHOWN = 60
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;", re.MULTILINE)
PASSED = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. ok", re.MULTILINE)
# The default is the number of cores. With one thread, tests would run in a thread without their
# name, which tells which test is skipped.
TEST_THREADS = str(max(2, os.cpu_count() or 1))
printing = threading.Lock()


def programs(options):
    """Returns the test programs as (name, file, crate's folder). Those of `tests/` come first,
    because they take longest."""
    command = ["cargo", "test", *options, "--no-run", "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        return None, built.stderr
    messages = (json.loads(line) for line in built.stdout.splitlines() if line.startswith("{"))
    tests = [
        it
        for it in messages
        if it.get("reason") == "compiler-artifact" and it["profile"]["test"] and it["executable"]
    ]
    tests.sort(key=lambda it: "test" not in it["target"]["kind"])
    return [
        (it["target"]["name"], it["executable"], pathlib.Path(it["manifest_path"]).parent)
        for it in tests
    ], ""


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


def report(name, began, output, code, logs, tally, skips):
    """Prints the line of one program and adds its counts. Returns whether all its tests passed."""
    (logs / f"cargo-{name.replace('/', '-')}.log").write_text(output)
    results = RESULT.findall(output)
    counts = [sum(int(found[at]) for found in results) for at in range(3)]
    counts, lines = without_skipped(counts, output, skips)
    # A program that crashed reports no result for its last test. A program that reports nothing
    # that is understood here would not be counted at all.
    if (code != 0 or not results) and counts[1] == 0:
        counts[1] = 1
    if sum(counts) == 0:
        return True
    with printing:
        words = "{} passed, {} failed, {} skipped".format(*counts)
        print(
            f"{'FAIL' if counts[1] else 'ok':<4} {'cargo/' + name:<30} {'':<5} {time.monotonic() - began:>6.1f} s  {words}",
            flush=True,
        )
        if counts[1]:
            said = [
                line for line in output.splitlines() if line and not re.match(r"test .* ok$", line)
            ]
            lines += said[-OUTPUT_LINES_SHOWN:]
        for line in lines:
            print(f"        | {line}", flush=True)
        with open(tally, "a") as file:
            print(*counts, file=file)
    return counts[1] == 0


def run(name, command, folder, logs, tally):
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-skips.") as place:
        skips = pathlib.Path(place, "list")
        environment = dict(
            os.environ,
            CARGO_MANIFEST_DIR=str(folder),
            PENSTOCK_TEST_SKIPS=str(skips),
            RUST_TEST_THREADS=TEST_THREADS,
        )
        output, code = ended(command, folder, environment)
        return report(name, began, output, code, logs, tally, read_skips(skips))


def ended(command, folder, environment):
    """Returns the output and the exit code of a program, which is ended if it hangs."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        output, _ = process.communicate(timeout=SECONDS_MAX)
        code = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        output, code = process.communicate()[0] + f"\nended after {SECONDS_MAX} s\n", -9
    return output, code


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    logs, tally = pathlib.Path(sys.argv[1]), sys.argv[2]
    options = sys.argv[3:] or ["--workspace"]
    began = time.monotonic()
    tests, complaint = programs(options)
    if tests is None:
        report("build", began, complaint, 1, logs, tally, {})
        sys.exit(1)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        jobs = [
            pool.submit(run, f"{folder.name}/{name}", [file], folder, logs, tally)
            for name, file, folder in tests
        ]
        good = [job.result() for job in jobs]
    if not {"--test", "--lib"} & set(options):
        documents = ["cargo", "test", *options, "--doc"]
        good.append(run("documents", documents, pathlib.Path.cwd(), logs, tally))
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()

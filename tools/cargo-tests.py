#!/usr/bin/env python3
"""Runs the tests of all crates, as `cargo test --workspace` does, but several programs at a time,
because many tests wait more than they work.

    tools/cargo-tests.py LOGS TALLY

Prints one line per program. Writes the output of each program to LOGS and its counts to TALLY.
Exits with 1 if a test failed or a crate did not build.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

# One more than the number of cores, because most slow tests sleep.
AT_A_TIME = (os.cpu_count() or 1) + 1
# On a quiet machine, no program of ours takes a minute. A program that takes this long hangs.
SECONDS_MAX = 600
OUTPUT_LINES_SHOWN = 60
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;", re.MULTILINE)
printing = threading.Lock()


def programs():
    """Returns the test programs as (name, file, crate's folder). Those of `tests/` come first,
    because they take longest."""
    command = [
        "cargo",
        "test",
        "--workspace",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]
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


def report(name, began, output, code, logs, tally):
    """Prints the line of one program and adds its counts. Returns whether all its tests passed."""
    (logs / f"cargo-{name.replace('/', '-')}.log").write_text(output)
    counts = [sum(int(found[at]) for found in RESULT.findall(output)) for at in range(3)]
    # A program that crashed reports no result for its last test.
    if code != 0 and counts[1] == 0:
        counts[1] = 1
    if sum(counts) == 0:
        return True
    with printing:
        words = "{} passed, {} failed, {} skipped".format(*counts)
        print(
            f"{'FAIL' if counts[1] else 'ok':<4} {'cargo/' + name:<20} {'':<5} {time.monotonic() - began:>6.1f} s  {words}",
            flush=True,
        )
        if counts[1]:
            lines = [
                line for line in output.splitlines() if line and not re.match(r"test .* ok$", line)
            ]
            print(
                "\n".join(f"        | {line}" for line in lines[-OUTPUT_LINES_SHOWN:]), flush=True
            )
        with open(tally, "a") as file:
            print(*counts, file=file)
    return counts[1] == 0


def run(name, command, folder, logs, tally):
    began = time.monotonic()
    environment = dict(os.environ, CARGO_MANIFEST_DIR=str(folder))
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
    return report(name, began, output, code, logs, tally)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    logs, tally = pathlib.Path(sys.argv[1]), sys.argv[2]
    began = time.monotonic()
    tests, complaint = programs()
    if tests is None:
        report("build", began, complaint, 1, logs, tally)
        sys.exit(1)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        jobs = [
            pool.submit(run, f"{folder.name}/{name}", [file], folder, logs, tally)
            for name, file, folder in tests
        ]
        good = [job.result() for job in jobs]
    good.append(
        run("documents", ["cargo", "test", "--workspace", "--doc"], pathlib.Path.cwd(), logs, tally)
    )
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()

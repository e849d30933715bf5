#!/usr/bin/env python3
"""Measures the time from the start of a program to its first context on a node over SSH, beside
that of `ssh HOST true`.

    tests/ssh/measure.py [--times N] [--bar RATIO]

The variants alternate. Prints the median of each, and its ratio to the median of `ssh HOST true`.
With --bar, fails if the ratio of the program or of `penstock run` is above it. The daemon runs
already, except in the line that says otherwise.
"""

import argparse
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from server import BIN, HERE, Place, wait_for

PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target")) / "programs"
CONTEXT = PROGRAMS / "ssh-context"


def build():
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-O1", "-Wall", "-o", CONTEXT, HERE / "context.c", "-lOpenCL"]
    subprocess.run(command, check=True)


def seconds(command, env):
    started = time.monotonic()
    ended = subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    took = time.monotonic() - started
    if ended.returncode != 0:
        sys.exit(f"{command} ended with {ended.returncode}: {ended.stdout}{ended.stderr}")
    return took


def end_daemons(place):
    for pid, words in place.processes().items():
        if "serve --detached" in words:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not place.processes(), 20, lambda: f"left: {place.processes()}")


def measure(place, times):
    env = place.env | {"PENSTOCK_NODES": place.nodes}
    login = ["ssh", "-F", place.folder / "ssh_config", "node0", "true"]
    run = [BIN / "penstock", "run", "--no-local", "--", CONTEXT]
    variants = {
        "ssh HOST true": (login, env),
        "program": ([CONTEXT], env | place.icd),
        "penstock run -- program": (run, env),
    }
    taken = {name: [] for name in variants}
    for turn in range(times + 1):
        for name, (command, around) in variants.items():
            took = seconds(command, around)
            # The first turn starts the daemon.
            if turn > 0:
                taken[name].append(took)
    cold = []
    for _ in range(max(1, times // 4)):
        end_daemons(place)
        cold.append(seconds([CONTEXT], env | place.icd))
    taken["program, which starts the daemon"] = cold
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20, help="measurements of each variant (20)")
    parser.add_argument("--bar", type=float, help="largest ratio")
    arguments = parser.parse_args()
    build()
    folder = tempfile.mkdtemp(prefix="ps.", dir="/tmp")
    place = Place(folder)
    try:
        taken = measure(place, arguments.times)
    finally:
        place.close()
        shutil.rmtree(folder, ignore_errors=True)
    base = statistics.median(taken["ssh HOST true"])
    failed = False
    for name, values in taken.items():
        median = statistics.median(values)
        ratio = median / base
        print(f"{name:<36} {1000 * median:7.1f} ms  {ratio:5.2f}  (of {len(values)})")
        is_judged = name in ("program", "penstock run -- program")
        failed |= bool(arguments.bar) and is_judged and ratio > arguments.bar
    return 1 if failed else 0


sys.exit(main())

#!/usr/bin/env python3
"""Measures the time from the start of a program to its first context on a node over SSH, beside
that of `ssh HOST true`.

    tests/ssh/measure.py [--times N] [--bar RATIO] [--round-trip MS]

The variants alternate. Prints the median of each, and its ratio to the median of `ssh HOST true`.
With --bar, fails if the ratio of the program or of `penstock run` is above it. The daemon runs
already, except in the line that says otherwise. The session is direct, except in the lines that
say otherwise.

With --round-trip, all bytes go through a relay that holds them for half of that time, as a network
does. Prints how many round trips each variant takes, by the time that it takes longer than without
a delay, and measures nothing else.

Otherwise it then prints how many MiB a program writes to a device in a second, in pieces of 4 MiB:
through SSH, and directly.
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
WRITES = PROGRAMS / "ssh-writes"
# Writing takes this long, and its median is of this number of runs of each kind.
WRITES_S, WRITES_TIMES = 3, 5


def build():
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    for program in (CONTEXT, WRITES):
        source = HERE / program.name.replace("ssh-", "")
        command = ["gcc", "-O1", "-Wall", "-o", program, f"{source}.c", "-lOpenCL"]
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
    wait_for(lambda: not place.processes(), lambda: f"left: {place.processes()}")


def measure(place, times, is_cold=True, relayed=False):
    env = place.env | {"PENSTOCK_NODES": place.nodes}
    if relayed:
        env |= place.meddling("--relay", str(place.delay_s))
    login = ["ssh", "-F", place.folder / "ssh_config", "node0", "true"]
    run = [BIN / "penstock", "run", "--no-local", "--", CONTEXT]
    variants = {
        "ssh HOST true": (login, env),
        "program": ([CONTEXT], env | place.icd),
        "program, through SSH": ([CONTEXT], env | place.icd | {"PENSTOCK_SSH_DIRECT": "never"}),
        "penstock run -- program": (run, env),
    }
    taken = {name: [] for name in variants}
    for turn in range(times + 1):
        for name, (command, around) in variants.items():
            took = seconds(command, around)
            # The first turn starts the daemon.
            if turn > 0:
                taken[name].append(took)
    if not is_cold:
        return taken
    cold = []
    for _ in range(max(1, times // 4)):
        end_daemons(place)
        cold.append(seconds([CONTEXT], env | place.icd))
    taken["program, which starts the daemon"] = cold
    return taken


def round_trips(folder, ms, times):
    """Returns the number of round trips of each variant: medians with and without a delay."""
    medians = []
    for delay in (0, ms):
        place = Place(Path(folder) / str(delay), direct=True, delay_s=delay / 2000)
        try:
            taken = measure(place, times, is_cold=False, relayed=True)
        finally:
            place.close()
        medians.append({name: statistics.median(values) for name, values in taken.items()})
    near, far = medians
    return {name: (1000 * (far[name] - near[name]) / ms, far[name]) for name in near}


def written(place):
    """Returns the MiB in a second of each kind of session."""
    env = place.env | place.icd | {"PENSTOCK_NODES": place.nodes}
    taken = {"auto": [], "never": []}
    for _ in range(WRITES_TIMES):
        for setting, values in taken.items():
            ended = subprocess.run(
                [WRITES, str(WRITES_S)],
                env=env | {"PENSTOCK_SSH_DIRECT": setting},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            values.append(float(ended.stdout))
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20, help="measurements of each variant (20)")
    parser.add_argument("--bar", type=float, help="largest ratio")
    parser.add_argument("--round-trip", type=int, help="ms of a round trip through a relay")
    arguments = parser.parse_args()
    build()
    folder = tempfile.mkdtemp(prefix="ps.", dir="/tmp")
    if arguments.round_trip:
        try:
            found = round_trips(folder, arguments.round_trip, arguments.times)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        base = found["ssh HOST true"][1]
        for name, (trips, took) in found.items():
            ratio = took / base
            print(f"{name:<36} {trips:5.1f} round trips  {1000 * took:7.1f} ms  {ratio:5.2f}")
        return 0
    place = Place(folder, direct=True)
    try:
        taken = measure(place, arguments.times)
        speeds = written(place)
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
    for setting, name in (("never", "4 MiB writes, through SSH"), ("auto", "4 MiB writes, direct")):
        values = speeds[setting]
        spread = f"{min(values):.0f} to {max(values):.0f}"
        print(f"{name:<36} {statistics.median(values):7.0f} MiB/s  ({spread})")
    return 1 if failed else 0


sys.exit(main())

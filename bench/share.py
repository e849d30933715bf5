#!/usr/bin/env python3
"""Measures how eight programs share two devices: their total throughput beside that of one program
that has both devices for itself, and how much each program gets.

    bench/share.py [--guests] [--turns N] [--seconds S]

Each program keeps one device busy with kernels of some 50 ms, which use one core each. The
placement is round robin, so four programs share a device. With --guests the programs run in
emulated guests. Their processors need the cores that the devices use, so the load is one for which
a guest has little to do. Each turn measures the one program and then the eight.

The kernels per second of all processes together compare the two. On a machine that has other work
as well, they also depend on that work. So each line also has the kernels per core-second, where the
core-seconds are those of the programs, their workers and the daemon, and of the guests. The last
lines compare with the bars.
"""

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("", "faults", "guests")]

from guest import BOOT_S, Guest, Place, missing, write_initramfs
from node import Node, build_load, wait_for
from processes import cpu_of, tree

PROGRAMS, DEVICES = 8, 2
# Bars of the project: the total beside one program, and the smallest part beside a fair one.
TOTAL_MIN, PART_MIN = 0.95, 0.5


def count(program, since, until):
    """Returns the kernels of a program that ended in this time, and the part of the next one."""
    ends = [stamp for line, stamp in zip(program.lines, program.stamps) if line == "kernel"]
    inside = [stamp for stamp in ends if since <= stamp < until]
    before = [stamp for stamp in ends if stamp < since]
    after = [stamp for stamp in ends if stamp >= until]
    if not (inside and before and after):
        return len(inside)
    first = (inside[0] - since) / (inside[0] - before[-1])
    last = (until - inside[-1]) / (after[0] - inside[-1])
    return len(inside) - 1 + first + last


class Rates:
    """The kernels per second of each program while all of them work."""

    def __init__(self, pool, programs, seconds):
        time.sleep(2)
        cores_s, since = pool.cores_s(programs), time.monotonic()
        time.sleep(seconds)
        until = time.monotonic()
        cores_s = pool.cores_s(programs) - cores_s
        # The kernel that is running at the end counts in part.
        time.sleep(5)
        self.each = [count(program, since, until) / (until - since) for program in programs]
        self.total = sum(self.each)
        self.per_core_s = self.total * (until - since) / cores_s

    def __str__(self):
        return f"{self.total:.2f}/s, {self.per_core_s:.2f} per core-second"


class Programs:
    """Starts programs on the host, or each in a guest."""

    def __init__(self, folder, in_guests):
        self.places = [Place(folder, number) for number in range(PROGRAMS if in_guests else 0)]
        listens = [place.listen for place in self.places]
        devices = " ".join(["pthread"] * DEVICES)
        self.node = Node(folder, "unix", listens=listens, devices=devices)
        self.initramfs = Path(folder) / "initramfs"
        if in_guests:
            write_initramfs(self.initramfs, self.node.key)

    def cores_s(self, programs):
        """Returns the core-seconds of all processes that take part."""
        daemon = self.node.daemon.pid
        pids = [daemon, *tree(daemon)]
        for program in programs:
            pids += (
                [program.machine.pid, program.monitor.pid] if self.places else [program.process.pid]
            )
        return sum(cpu_of(pid) for pid in pids)

    @contextlib.contextmanager
    def running(self, number, devices):
        started = []
        try:
            for index in range(number):
                if self.places:
                    place = self.places[index]
                    program = Guest(place, self.initramfs, "rate", 36000, devices)
                else:
                    program = self.node.client("rate", 36000, devices)
                started.append(program)
                # One after the other: a daemon waits for a hello for 5 s, and guests that boot at
                # the same time as others are too slow for that.
                wait_for(
                    lambda p=program: "kernel" in p.lines,
                    BOOT_S,
                    lambda p=program: f"a program does not start: {p.lines[-4:]}",
                )
            yield started
        finally:
            for program in started:
                program.end() if self.places else program.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--guests", action="store_true", help="run each program in a guest")
    parser.add_argument("--turns", type=int, default=3, help="measurements of each (default 3)")
    parser.add_argument("--seconds", type=float, default=20, help="time of each (default 20)")
    arguments = parser.parse_args()
    if arguments.guests and missing():
        sys.exit(missing())
    build_load()
    os.environ["PENSTOCK_PLACEMENT"] = "round-robin"
    folder = tempfile.mkdtemp(prefix="penstock-s.", dir="/tmp")
    programs = Programs(folder, arguments.guests)
    totals, works, parts = [], [], []
    try:
        for turn in range(arguments.turns):
            with programs.running(1, DEVICES) as started:
                alone = Rates(programs, started, arguments.seconds)
            with programs.running(PROGRAMS, 1) as started:
                shared = Rates(programs, started, arguments.seconds)
            totals.append(shared.total / alone.total)
            works.append(shared.per_core_s / alone.per_core_s)
            parts.append(min(shared.each) * PROGRAMS / shared.total)
            each = " ".join(f"{rate:.2f}" for rate in shared.each)
            print(f"turn {turn}: one program {alone}; {PROGRAMS} programs {shared}: {each}")
            print(
                f"        total {totals[-1]:.3f}, per core-second {works[-1]:.3f}, "
                f"smallest part {parts[-1]:.3f}",
                flush=True,
            )
    finally:
        programs.node.stop()
        shutil.rmtree(folder, ignore_errors=True)
    total, work, part = statistics.median(totals), statistics.median(works), min(parts)
    print(f"total: {total:.3f} of one program, median; the bar is {TOTAL_MIN}")
    print(f"per core-second: {work:.3f} of one program, median")
    print(f"smallest part: {part:.3f} of a fair one, worst turn; the bar is {PART_MIN}")
    return int(total < TOTAL_MIN or part < PART_MIN)


sys.exit(main())

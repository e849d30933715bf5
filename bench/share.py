#!/usr/bin/env python3
"""Measures how eight programs share two devices: their total throughput beside that of one program
that has both devices for itself, and how much each program gets.

    bench/share.py [--guests] [--turns N] [--seconds S] [--length N]

Each program keeps one device busy with kernels that use one core each. The placement is round
robin, so four programs share a device. With --guests the programs run in emulated guests, one
program in each.

All programs start one after another, before anything is measured, and then sleep. Each turn wakes
the one program that has both devices and measures it, and then wakes the eight. So both
measurements have the same processes beside them.

Two figures compare the eight with the one. The kernels per second are what users see. They also
depend on other work of the machine, and an emulated guest takes processor time from devices that
are processors, too. The kernels per core-second of the devices, which are the core-seconds of the
daemon and its workers, tell whether sharing itself costs something. The last lines compare with the
bars.
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
from node import Fault, Node, build_load, wait_for
from processes import cpu_of, tree

PROGRAMS, DEVICES = 8, 2
# Bars of the project: the total beside one program, and the smallest part beside a fair one.
TOTAL_MIN, PART_MIN = 0.95, 0.5
# Time after which all programs work evenly, and time in which the processes that sleep are watched.
SETTLE_S, SLEEP_S = 2, 5
# A kernel in a guest is ten times as long as one on the host. A guest needs some milliseconds of a
# core for each kernel, which should be a small part of it.
LENGTHS = {False: 1, True: 10}
# Longest time of one kernel of some 50 ms while seven other programs and other work want the cores.
KERNEL_S_MAX = 6
# Longest life of a program.
LIFE_S = 36000


def count(program, since, until):
    """Returns the kernels of a program that ended in this time, and the part of the next one."""
    ends = ends_of(program)
    inside = [stamp for stamp in ends if since <= stamp < until]
    before = [stamp for stamp in ends if stamp < since]
    after = [stamp for stamp in ends if stamp >= until]
    if not (inside and before and after):
        return len(inside)
    first = (inside[0] - since) / (inside[0] - before[-1])
    last = (until - inside[-1]) / (after[0] - inside[-1])
    return len(inside) - 1 + first + last


def ends_of(program):
    """Returns when the kernels of a program ended."""
    return [stamp for line, stamp in zip(program.lines, program.stamps) if line == "kernel"]


class Rates:
    """The kernels per second of programs that work at the same time."""

    def __init__(self, pool, programs, seconds):
        wait = pool.length * KERNEL_S_MAX
        began = time.monotonic()
        for program in programs:
            program.signal("USR1")
        self.await_kernels(programs, began, wait)
        time.sleep(SETTLE_S)
        devices_s, guests_s = pool.devices_s(), pool.guests_s()
        since = time.monotonic()
        time.sleep(seconds)
        until = time.monotonic()
        devices_s, guests_s = pool.devices_s() - devices_s, pool.guests_s() - guests_s
        # The kernel that is running at the end counts in part.
        self.await_kernels(programs, until, wait)
        rests = [program.lines.count("rest") for program in programs]
        for program in programs:
            program.signal("USR2")
        for program, before in zip(programs, rests):
            wait_for(
                lambda p=program, b=before: p.lines.count("rest") > b,
                wait,
                lambda p=program: f"a program does not rest: {p.lines[-4:]}",
            )
        self.each = [count(program, since, until) / (until - since) for program in programs]
        self.total = sum(self.each)
        self.per_core_s = self.total * (until - since) / devices_s
        self.cores_of_guests = guests_s / (until - since)

    @staticmethod
    def await_kernels(programs, since, patience_s):
        for program in programs:
            wait_for(
                lambda p=program: ends_of(p)[-1] >= since,
                patience_s,
                lambda p=program: f"a program does not work: {p.lines[-4:]}",
            )

    def __str__(self):
        guests = f", guests use {self.cores_of_guests:.2f} cores" if self.cores_of_guests else ""
        return f"{self.total:.2f}/s, {self.per_core_s:.2f} per core-second{guests}"


class Programs:
    """One program for both devices, and eight for one device each, on the host or in guests."""

    def __init__(self, folder, in_guests, length):
        self.in_guests, self.length, self.started = in_guests, length, []
        places = [Place(folder, number) for number in range(1 + PROGRAMS if in_guests else 0)]
        listens = [place.listen for place in places]
        devices = " ".join(["pthread"] * DEVICES)
        self.node = Node(folder, "unix", listens=listens, devices=devices)
        if in_guests:
            initramfs = Path(folder) / "initramfs"
            write_initramfs(initramfs, self.node.key)
            self.places = [(place, initramfs) for place in places]

    def start(self):
        """Starts all programs, one after another: guests that boot at the same time as others may
        be too slow for a daemon that waits for their hello."""
        for number in range(1 + PROGRAMS):
            devices = DEVICES if number == 0 else 1
            load = ("rate", LIFE_S, devices, self.length)
            if self.in_guests:
                program = Guest(*self.places[number], *load)
            else:
                program = self.node.client(*load)
            self.started.append(program)
            wait_for(
                lambda p=program: "rest" in p.lines,
                BOOT_S,
                lambda p=program: f"a program does not start: {p.lines[-4:]}",
            )
        return self.started[0], self.started[1:]

    def devices_s(self):
        """Returns the core-seconds of the daemon and of the workers, which are the devices."""
        daemon = self.node.daemon.pid
        return sum(cpu_of(pid) for pid in (daemon, *tree(daemon)))

    def guests_s(self):
        """Returns the core-seconds of the guests and of their monitors."""
        guests = self.started if self.in_guests else []
        pids = [pid for guest in guests for pid in (guest.machine.pid, guest.monitor.pid)]
        return sum(cpu_of(pid) for pid in pids)

    def end(self):
        for program in self.started:
            program.end() if self.in_guests else program.kill()
        self.node.stop()


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--guests", action="store_true", help="run each program in a guest")
    parser.add_argument("--turns", type=int, default=3, help="measurements of each (default 3)")
    parser.add_argument("--seconds", type=float, default=20, help="time of each (default 20)")
    parser.add_argument(
        "--length", type=int, help="time of a kernel, in 50 ms (default 1, with --guests 10)"
    )
    return parser.parse_args()


def measure(programs, arguments):
    """Returns the totals, the totals per core-second, and the smallest parts, of each turn."""
    began = time.monotonic()
    one, eight = programs.start()
    print(f"{1 + PROGRAMS} programs started within {time.monotonic() - began:.0f} s", flush=True)
    if programs.in_guests:
        before = programs.guests_s()
        time.sleep(SLEEP_S)
        asleep = (programs.guests_s() - before) / SLEEP_S
        print(f"{1 + PROGRAMS} guests whose programs sleep use {asleep:.2f} cores", flush=True)
    totals, works, parts = [], [], []
    for turn in range(arguments.turns):
        alone = Rates(programs, [one], arguments.seconds)
        shared = Rates(programs, eight, arguments.seconds)
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
    return totals, works, parts


def main():
    arguments = options()
    if arguments.guests and missing():
        sys.exit(missing())
    build_load()
    os.environ["PENSTOCK_PLACEMENT"] = "round-robin"
    length = arguments.length or LENGTHS[arguments.guests]
    with contextlib.ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="penstock-s.", dir="/tmp")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        programs = Programs(folder, arguments.guests, length)
        stack.callback(programs.end)
        try:
            totals, works, parts = measure(programs, arguments)
        except Fault as fault:
            # A guest that does not run for 8 s loses its session: the machine is too busy.
            log = Path(programs.node.log.name).read_text().splitlines()
            told = [line for line in log if "session ended" in line]
            sys.exit("\n".join([f"not measured: {fault}", "the daemon says:", *told[-4:]]))
    total, work, part = statistics.median(totals), statistics.median(works), min(parts)
    print(f"total: {total:.3f} of one program, median; the bar is {TOTAL_MIN}")
    print(f"per core-second of the devices: {work:.3f} of one program, median")
    print(f"smallest part: {part:.3f} of a fair one, worst turn; the bar is {PART_MIN}")
    return int(total < TOTAL_MIN or part < PART_MIN)


sys.exit(main())

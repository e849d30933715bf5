#!/usr/bin/env python3
"""Starts many programs together on one daemon. All must compute right, and none may be refused.

    tests/load/run.py [--programs 200] [--on unix,tcp] [--cores 2] [--through run|icd] [--alone 20]

Each program compiles a kernel of its own and computes. The daemon, its workers and all programs
share the given number of cores. For each pool the script prints one line: the number of right
programs, the time at which the last one began to compute, and the sum of the work of all others,
which explains that time. The work of one program is the CPU time of the program and of its worker
(including the worker's start), divided by the number of cores; it is the mean over some programs
that run one after the other. The time that other processes used on the same cores is reported, but
does not count. A program that fails is a failure; in the lane `perf` it is also one if the last
program began later than the work explains.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from patience import CASE_S, LANE, PATIENCE_S, runs
from tally import Tally

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BIN = Path(os.environ.get("PENSTOCK_BIN", TARGET / "release"))

# Factor, in the lane `perf`, by which the last program may begin later than the work of the others explains, because
# they share caches and memory.
SLACK = 1.5

# The programs that start together.
PROGRAMS = {"test": 20, "all": 200, "perf": 200}


def build():
    program, source = TARGET / "programs" / "load-work", ROOT / "tests/load/work.c"
    program.parent.mkdir(parents=True, exist_ok=True)
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(
            [
                "gcc",
                "-std=c11",
                "-D_GNU_SOURCE",
                "-O1",
                "-Wall",
                "-Wextra",
                "-o",
                program,
                source,
                "-lOpenCL",
            ],
            check=True,
        )
    return program


class Pool:
    """A daemon, and how a program reaches it."""

    def __init__(self, kind, through):
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-load."))
        self.through = through
        self.env = {
            name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")
        }
        self.env |= {
            "PENSTOCK_KEY": str(self.folder / "key"),
            "XDG_RUNTIME_DIR": str(self.folder),
            "POCL_CACHE_DIR": str(self.folder / "cache"),
        }
        self.env["PENSTOCK_LIB"] = str(BIN / "libpenstock_opencl.so")
        subprocess.run(
            [BIN / "penstock", "key", "--create"],
            env=self.env,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        listen = f"unix:{self.folder}/node.sock" if kind == "unix" else "tcp:127.0.0.1:0"
        self.log = open(self.folder / "daemon.log", "wb")
        self.daemon = subprocess.Popen(
            [BIN / "penstock", "serve", "--listen", listen],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.address = self.daemon.stdout.readline().strip().removeprefix("listening on ")
        assert self.address.startswith(kind), f"the daemon did not start: {self.said()}"
        vendors = self.folder / "vendors"
        vendors.mkdir()
        (vendors / "penstock.icd").write_text(f"{BIN / 'libpenstock_opencl.so'}\n")
        self.client = dict(self.env, PENSTOCK_NODES=self.address)
        if through == "icd":
            self.client |= {"OCL_ICD_VENDORS": str(vendors), "OPENCL_VENDOR_PATH": str(vendors)}

    def said(self):
        return Path(self.log.name).read_text(errors="replace")

    def command(self, program, number):
        start = [BIN / "penstock", "run", "--"] if self.through == "run" else []
        return [str(part) for part in (*start, program, number)]

    def start(self, program, number):
        return subprocess.Popen(
            self.command(program, number),
            env=self.client,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def cpu_s(self):
        """Returns the CPU time of the daemon and of all its workers that have ended."""
        ticks = Path(f"/proc/{self.daemon.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(map(int, ticks[11:15])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        self.daemon.terminate()
        self.daemon.wait(PATIENCE_S)
        self.daemon.stdout.close()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def busy_s(cores):
    """Returns the CPU time that all processes of the machine used on some cores."""
    busy = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name in {f"cpu{core}" for core in cores}:
            ticks = list(map(int, fields))
            # Without idle time, and without the time of guests, which is included in that of users.
            busy += sum(ticks[:8]) - ticks[3] - ticks[4]
    return busy / os.sysconf("SC_CLK_TCK")


def children_cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def times_of(process, patience):
    out, err = process.communicate(timeout=patience)
    if process.returncode != 0:
        return None, err
    return tuple(map(float, out.split())), err


def work_of_one(pool, program, count, cores):
    """Returns the seconds that one program takes on all cores: its own CPU time and that of its
    worker, including the worker's start."""
    for number in range(2):
        times_of(pool.start(program, 10_000 + number), PATIENCE_S)
    time.sleep(2)
    before = pool.cpu_s() + children_cpu_s()
    for number in range(count):
        found, err = times_of(pool.start(program, 20_000 + number), PATIENCE_S)
        assert found, f"a program alone failed: {err}"
    time.sleep(2)
    return (pool.cpu_s() + children_cpu_s() - before) / count / cores


def together(pool, program, programs):
    """Starts all programs at once. Returns the times of those that were right, and the messages of
    the others."""
    began = time.monotonic()
    processes = [pool.start(program, number) for number in range(programs)]
    right, wrong, lines = [], [], []
    for process in processes:
        try:
            found, err = times_of(process, CASE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            found, err = None, f"hangs: {process.communicate()[1]}"
        right.append(found) if found else wrong.append(err.strip() or "failed without a word")
        lines += [line for line in err.splitlines() if "waits in line" in line]
    return began, right, wrong, lines


def run(kind, args, program):
    pool = Pool(kind, args.through)
    try:
        one = work_of_one(pool, program, args.alone, len(args.cores)) if runs("perf") else 0
        own, all_busy = -pool.cpu_s() - children_cpu_s(), -busy_s(args.cores)
        began, right, wrong, lines = together(pool, program, args.programs)
        took = time.monotonic() - began
        all_busy += busy_s(args.cores)
        if runs("perf"):
            # The CPU time of the last workers is known only after they have ended.
            time.sleep(1)
        own += pool.cpu_s() + children_cpu_s()
    finally:
        pool.close()
    last = max((times[1] for times in right), default=began) - began
    first = min((times[1] for times in right), default=began) - began
    # The time of other processes of the machine does not count.
    foreign = max(0.0, all_busy - own) / len(args.cores) * last / took
    explained = one * (args.programs - 1)
    for text in sorted(set(wrong))[:5]:
        print(f"        | {wrong.count(text)} x {text.splitlines()[-1][:200]}")
    note = (
        f"{len(right)} of {args.programs} right; first computed after {first:.1f} s, last after "
        f"{last:.1f} s, of which other processes took {foreign:.1f} s; the others' work is "
        f"{explained:.1f} s ({one * 1000:.0f} ms each); {len(lines)} lines told of the line"
    )
    assert not wrong, note
    if runs("perf"):
        assert last - foreign <= SLACK * explained + 1, note
    return note


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=PROGRAMS[LANE])
    parser.add_argument("--on", default="tcp" if LANE == "test" else "unix,tcp")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--alone", type=int, default=20)
    parser.add_argument("--through", choices=["icd", "run"], default="icd")
    args = parser.parse_args()
    if not (BIN / "penstock").exists():
        sys.exit(f"no penstock in {BIN}: run `make build` first")
    args.cores = sorted(os.sched_getaffinity(0))[: args.cores]
    os.sched_setaffinity(0, args.cores)
    program = build()
    count = Tally("load")
    count.plan(len(args.on.split(",")))
    for kind in args.on.split(","):
        with count.case(f"load/{args.programs} programs over {kind}", 2 * CASE_S) as case:
            case.note = run(kind, args, program)
    return count.end()


sys.exit(main())

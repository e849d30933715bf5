#!/usr/bin/env python3
"""Molecular dynamics on the pool, beside the local driver, by the method of the papers: ten runs of
each, and the mean of the ratios.

The runs alternate: in each round every way to the devices has its turn, beginning with another one
each time. A ratio compares two runs of the same round. A run counts only if its physics is that of
a native run on the same device: equal thermodynamic lines (LAMMPS), or equal forces (OpenMM).

Writes a JSON file; `bench/md/report.py` makes the tables and pictures of
docs/molecular-dynamics.md from the files in bench/md/results.
"""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import pools as md_pools  # noqa: E402
import programs as md_programs  # noqa: E402

FLOORS = ["floor-unix", "floor-tcp"]
WAYS = ["native", "unix", "tcp", "guest-vsock", "guest-shm", "guest-net"]
SEVERAL = ["nodes-2", "nodes-3", "nodes-4", "nodes-2-1gbit", "nodes-4-1gbit"]


def machine(driver):
    """Describes this machine as far as the results depend on it."""
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1])
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**20),
        # The version alone: what builders append names the machine.
        "kernel": platform.release().partition("-")[0],
        "driver": Path(driver).stem,
        "kvm": os.access("/dev/kvm", os.R_OK | os.W_OK),
        "load_before": os.getloadavg()[0],
    }


def make_ways(pools, wanted):
    """Returns the wanted ways, each after the one that it is compared with."""
    ways = {}
    for name in wanted:
        try:
            if way := make_way(pools, name):
                ways[name] = way
        except md_pools.NotStarted as failure:
            ways[name] = md_pools.Way(name, "native", skipped=str(failure))
    natives = {way.native for way in ways.values()} | ({"native"} & set(wanted))
    for name in sorted(natives):
        count = name.partition("-")[2]
        ways[name] = pools.native_ranks(int(count)) if count else pools.native()
    for way in ways.values():
        way.builds_lists = "pocl" not in Path(pools.driver).stem
    return dict(sorted(ways.items(), key=lambda item: bool(item[1].native)))


def make_way(pools, name):
    """Returns the way of this name, or `None` for a native one."""
    if name in ("unix", "tcp"):
        return pools.one_node(name)
    if name in FLOORS:
        return pools.floor(name.removeprefix("floor-"))
    if name.startswith("guest-"):
        return pools.guest(name.removeprefix("guest-"), md_programs.LAMMPS / "lmp")
    if name.startswith("nodes-"):
        count, _, rate = name.removeprefix("nodes-").partition("-")
        return pools.nodes(int(count), rate)
    return None


def measure(case, ways, arguments, folder, progress):
    """Runs a case in all ways, and returns its rows."""
    rows = {
        name: {"case": case.name, "way": name, "native": way.native, "seconds": []}
        for name, way in ways.items()
    }
    for name, way in ways.items():
        rows[name].update(atoms=case.atoms, steps=case.steps, ranks=case.ranks_per_device)
        if way.emulated:
            rows[name]["emulated"] = True
        if way.skipped:
            rows[name]["skipped"] = way.skipped
            say(f"{case.name} {name}: not measured: {way.skipped}")
    physics = {}
    try:
        if found := md_programs.reference(case, folder / "reference"):
            physics = dict.fromkeys(("native", *ways), found)
    except md_programs.RunFailed as failure:
        say(f"{case.name}: the Reference platform fails: {failure}")
    for number in range(arguments.runs):
        order = [name for name in ways if "skipped" not in rows[name]]
        order = order[number % len(order) :] + order[: number % len(order)] if order else []
        if number == 0:
            # The natives come first, because the others are compared with them.
            order.sort(key=lambda name: bool(ways[name].native))
        for name in order:
            way, row = ways[name], rows[name]
            reference = physics.get(way.native)
            if way.native and reference is None:
                row["skipped"] = f"there is no run with {way.native} to compare with"
                say(f"{case.name} {name}: not measured: {row['skipped']}")
                continue
            started = time.monotonic()
            try:
                outcome = md_programs.perform(case, way, folder / name)
            except md_programs.RunFailed as failure:
                row["skipped"] = str(failure)
                say(f"{case.name} {name}: not measured: {failure}")
                continue
            if not way.native:
                physics.setdefault(name, keep(outcome.physics, folder / f"{name}-first"))
            reference = physics.get(way.native or name, outcome.physics)
            same = md_programs.is_equal(case, reference, outcome.physics)
            row["same_physics"] = row.get("same_physics", True) and same
            row["seconds"].append(outcome.seconds)
            left = progress.after(case, time.monotonic() - started)
            say(
                f"{case.name} run {number + 1} {name}: {outcome.seconds:.3f} s, same {same}; "
                f"about {left} left"
            )
    progress.leave(case)
    return list(rows.values())


class Progress:
    """Estimates how long the rest takes: from the cases' own estimates, and from the runs of a case
    as soon as there are some."""

    def __init__(self, cases, ways, runs):
        measurable = [way for way in ways.values() if not way.skipped]
        self.waiting = {case.name: (len(measurable) * runs, case.about_s) for case in cases}
        self.spent = {}

    def after(self, case, seconds):
        """Notes a run, and returns the time that is left, in words."""
        count, total = self.spent.get(case.name, (0, 0))
        self.spent[case.name] = (count + 1, total + seconds)
        runs, _ = self.waiting[case.name]
        self.waiting[case.name] = (max(runs - 1, 0), (total + seconds) / (count + 1))
        return self.left()

    def leave(self, case):
        """Notes that a case is done, also if some of its runs did not happen."""
        self.waiting.pop(case.name, None)

    def left(self):
        seconds = sum(runs * each for runs, each in self.waiting.values())
        return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{seconds / 60:.0f} min"


def keep(physics, place):
    """Keeps the physics of a first run, whose folder the next run clears."""
    if not physics.endswith(".npy"):
        return physics
    kept = Path(f"{place}.npy")
    kept.write_bytes(Path(physics).read_bytes())
    return str(kept)


def say(line):
    print(f"study-md: {line}", file=sys.stderr, flush=True)


def commit():
    asked = subprocess.run(
        ["git", "-C", HERE, "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    return asked.stdout.strip()


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=10, help="alternating runs (10)")
    parser.add_argument("--only", help="regular expression that the names of cases must match")
    parser.add_argument(
        "--ways", default=",".join(WAYS), help=f"from {', '.join(WAYS + FLOORS + SEVERAL)}"
    )
    parser.add_argument("--driver", default="/etc/OpenCL/vendors/pocl.icd", help="ICD file")
    parser.add_argument("--output", type=Path, default=HERE / "results/study.json")
    parser.add_argument("--quick", action="store_true", help="few steps, to try the script")
    parser.add_argument("--steps", type=int, help="steps of each run, in place of the case's own")
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="real-time priority for programs and daemons, if others use the machine (root)",
    )
    parser.add_argument("--note", default="", help="a sentence about the conditions")
    return parser.parse_args()


def main():
    arguments = options()
    wanted = arguments.ways.split(",")
    if unknown := set(wanted) - set(WAYS + FLOORS + SEVERAL):
        sys.exit(f"study-md: no such ways: {', '.join(sorted(unknown))}")
    chosen = [
        case
        for case in md_programs.cases(arguments.quick)
        if re.search(arguments.only or "", case.name)
    ]
    for case in chosen:
        case.steps = arguments.steps or case.steps
    if not chosen:
        sys.exit("study-md: no case has such a name")
    if arguments.realtime:
        # Daemons and programs inherit it.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    pools = md_pools.Pools(arguments.driver)
    rows, here = [], machine(arguments.driver)
    try:
        ways = make_ways(pools, wanted)
        progress = Progress(chosen, ways, arguments.runs)
        say(
            f"{len(chosen)} cases in {len(ways)} ways, {arguments.runs} runs each: about "
            f"{progress.left()} on two cores; the results go to {arguments.output} after each case"
        )
        for case in chosen:
            rows += measure(case, ways, arguments, pools.folder / "runs", progress)
            write(arguments, here, rows)
    finally:
        pools.stop()
    wrong = [row for row in rows if row.get("same_physics") is False]
    for row in wrong:
        say(f"{row['case']} {row['way']}: other physics than {row['native'] or 'its first run'}")
    sys.exit(1 if wrong else 0)


def write(arguments, here, rows):
    """Writes the results so far."""
    result = {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "runs": arguments.runs,
        "realtime": arguments.realtime,
        "note": arguments.note,
        "machine": here,
        "rows": rows,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")


main()

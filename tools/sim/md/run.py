#!/usr/bin/env python3
"""Models LAMMPS (LJ) on many nodes, each with one device, with measured times of steps.

    tools/sim/md/run.py [--nodes 1,4,16] [--platform ib-qdr] [--output FILE]
    tools/sim/md/run.py --check FILE [--fast]

Prints how long the steps take natively and on the pool, and the pool's efficiency. The records come
from tools/sim/md/record.sh. Times are simulated and do not depend on the machine: --check runs the
rows of FILE again, and any difference fails. With --fast it runs only rows of few nodes.
"""

import argparse
import csv
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent.parent
FIELDS = ["platform", "nodes", "kind", "seconds"]
KINDS = ["native", "unix", "tcp"]
# As LAMMPS's benchmark: each node has this number of atoms, and makes this number of steps.
ATOMS = 32_000
STEPS = 400
# Each row is the mean of runs whose ranks begin at different places of the record.
SEEDS = range(1, 6)
FAST_NODES_MAX = 4


def options():
    lines = (HERE.parent / "smpi.options").read_text().splitlines()
    return [f"--cfg={line.strip()}" for line in lines if line.strip() and not line.startswith("#")]


def build(directory):
    program = pathlib.Path(directory) / "steps"
    command = ["smpicc", "-O2", "-Wall", "-Wextra", str(HERE / "steps.c"), "-o", str(program)]
    subprocess.run([*command, "-lm"], check=True)
    return program


def simulate(program, directory, platform, nodes, kind):
    """Returns the mean of the simulated seconds."""
    hosts = pathlib.Path(directory) / "hosts"
    hosts.write_text("".join(f"node{index}\n" for index in range(nodes)))
    file = HERE.parent / "platforms" / f"{platform}.xml"
    launch = ["smpirun", "-quiet", "-np", str(nodes), "-platform", str(file), "-hostfile"]
    record = HERE / "records" / f"{kind}.txt"
    times = []
    for seed in SEEDS:
        words = [str(program), str(STEPS), str(ATOMS), str(record), str(seed)]
        done = subprocess.run(
            [*launch, str(hosts), *options(), *words], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            sys.exit(f"{kind}, {nodes} nodes: {done.stderr.strip()[-2000:]}")
        times.append(float(done.stdout.split()[-1]))
    return f"{sum(times) / len(times):.6f}"


def show(rows):
    print("nodes  native      " + "".join(f"{kind:>12}" for kind in KINDS[1:]))
    times = {(int(row["nodes"]), row["kind"]): float(row["seconds"]) for row in rows}
    for nodes in sorted({nodes for nodes, _ in times}):
        native = times[nodes, "native"]
        shares = "".join(f"{100 * native / times[nodes, kind]:>10.1f} %" for kind in KINDS[1:])
        print(f"{nodes:5}  {native:8.3f} s  {shares}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", default="1,2,4,8,16,32,64,128,256")
    parser.add_argument("--platform", default="ib-qdr")
    parser.add_argument("--output")
    parser.add_argument("--check", metavar="FILE")
    parser.add_argument("--fast", action="store_true")
    args = parser.parse_args()
    if args.check:
        with open(args.check, newline="") as file:
            wanted = [row for row in csv.DictReader(file)]
        if args.fast:
            wanted = [row for row in wanted if int(row["nodes"]) <= FAST_NODES_MAX]
    else:
        numbers = args.nodes.split(",")
        wanted = [
            {"platform": args.platform, "nodes": nodes, "kind": kind}
            for nodes in numbers
            for kind in KINDS
        ]
    rows, different = [], 0
    with tempfile.TemporaryDirectory() as directory:
        program = build(directory)
        for row in wanted:
            seconds = simulate(program, directory, row["platform"], int(row["nodes"]), row["kind"])
            rows.append({**row, "seconds": seconds})
            if args.check and seconds != row["seconds"]:
                different += 1
                print(f"{row['nodes']} nodes, {row['kind']}: {seconds} s, not {row['seconds']} s")
    if args.output:
        with open(args.output, "w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if args.check:
        print(f"{len(rows) - different} of {len(rows)} simulated times are exactly those of FILE")
        sys.exit(different > 0)
    show(rows)


if __name__ == "__main__":
    main()

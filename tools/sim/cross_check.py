#!/usr/bin/env python3
"""Runs the same programs emulated (tier B: network namespaces, real TCP, wall clock) and simulated
(tier C). Writes both times and the error.

    tools/sim/cross_check.py --native DIR [--programs DIR] [--output FILE]
    tools/sim/cross_check.py --again FILE    simulate the rows of FILE again, keep the emulated times

DIR contains the applications built for a cluster, with libwater.so and libwtr_mpi_openmpi.so. Needs
root. Wall-clock times are the best of three, because other load on the host only makes them longer.
"""

import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys

import run

# At most some seconds each, with enough bytes that the links matter.
RUNS = [("matrix_mul", "size=1500"), ("lin_reg", "paper"), ("perlin_noise", "size=4000")]
NODES = (2, 4, 8)
REPEAT = 3
FIELDS = ["app", "size", "nodes", "dcr", "emulated", "simulated", "error"]
SKIPPED = 77
EMULATION_SECONDS_MAX = 300


def emulate(native, app, nodes, size, dcr):
    options = [word for option in size.split() for word in f"--{option}".split("=")]
    command = [
        str(run.HERE / "emulate.sh"),
        str(nodes),
        str(run.HERE / "models/vsc2.json"),
        str(native / app),
        "--json",
        "--repeat",
        str(REPEAT),
        "--kernel",
        str(native / f"{app}.cl"),
        *options,
    ]
    environment = dict(os.environ, WTR_DCR=dcr)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=EMULATION_SECONDS_MAX
    )
    if done.returncode == SKIPPED:
        print(done.stderr.strip().splitlines()[-1])
        sys.exit(SKIPPED)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(lines) != 1:
        sys.exit(
            f"{' '.join(command)}\nended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return json.loads(lines[0])["seconds"]


def error(emulated, simulated):
    return f"{100 * (simulated / emulated - 1):+.1f} %"


def again(path, programs):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        simulated, _ = run.simulate(
            programs, row["app"], int(row["nodes"]), "gbe", "vsc2", row["dcr"], row["size"]
        )
        row.update(simulated=f"{simulated:.6f}", error=error(float(row["emulated"]), simulated))
        print(",".join(row.values()), flush=True)
    run.write_table(path, FIELDS, rows)
    return 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--native", type=pathlib.Path)
    parser.add_argument("--again")
    parser.add_argument("--programs", type=pathlib.Path, default=run.TARGET / "sim")
    parser.add_argument("--dcr", default="off,auto")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    programs = arguments.programs.resolve()
    if arguments.again:
        return again(arguments.again, programs)
    if not arguments.native:
        parser.error("--native or --again is needed")
    native = arguments.native.resolve()
    rows = []
    for app, size in RUNS:
        for dcr in arguments.dcr.split(","):
            for nodes in NODES:
                emulated = emulate(native, app, nodes, size, dcr)
                simulated, _ = run.simulate(programs, app, nodes, "gbe", "vsc2", dcr, size)
                rows.append(
                    dict(
                        zip(
                            FIELDS,
                            [
                                app,
                                size,
                                nodes,
                                dcr,
                                f"{emulated:.4f}",
                                f"{simulated:.6f}",
                                error(emulated, simulated),
                            ],
                        )
                    )
                )
                print(",".join(str(value) for value in rows[-1].values()), flush=True)
    if arguments.output:
        run.write_table(arguments.output, FIELDS, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

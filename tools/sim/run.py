#!/usr/bin/env python3
"""Runs the applications under the network simulator. Writes or checks a table of simulated times.

    tools/sim/run.py [--apps a,b] [--nodes 1,2,4] [--platform ib-qdr] [--model vsc2]
                     [--dcr off,auto] [--programs DIR] [--output FILE]
    tools/sim/run.py --check FILE [--fast]    run the rows of FILE again; any difference fails
    tools/sim/run.py --again FILE             run the rows of FILE again, and write the new times

--apps, --nodes and --dcr also select rows of FILE. A run without FILE prints efficiencies at its
end if it includes one node. Changed values and simulator options may follow the name of a model:
'vsc2 nap_us=2000 network/crosstraffic=0'. The value 'kernels=0.5' halves the time of every kernel
of the model. Simulated times do not depend on the machine, so they are compared exactly. Build the
programs first: tools/sim/build.sh DIR.
"""

import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", TOP / "target"))
FIELDS = ["app", "size", "platform", "model", "dcr", "nodes", "seconds"]
APPS = "perlin_noise,nbody,knn,floyd,matrix_mul,lin_reg"
NODES = "1,2,4,8,16,32,64"
MODES = "off,paper,auto"
# The paper's sizes. It does not say how many steps nbody makes; two are enough to show the cost per
# step.
PAPER = {"nbody": "paper steps=2"}
# A run that takes longer than this in real time has failed: the largest ones (1024 nodes) take
# minutes.
REAL_SECONDS_MAX = 7200
# Largest number of nodes of the rows that --fast runs. They take less than 20 s in total on two
# busy cores.
FAST_NODES_MAX = 8


def smpi_options():
    lines = (HERE / "smpi.options").read_text().splitlines()
    return [f"--cfg={line.strip()}" for line in lines if line.strip() and not line.startswith("#")]


def simulator_options(model):
    """Returns the simulator options among the words of a model: 'vsc2 network/crosstraffic=0'."""
    words = [word for word in str(model).split() if "/" in word and not word.endswith(".json")]
    return [f"--cfg={word.replace('=', ':')}" for word in words]


def model_file(model, directory):
    """Returns the file of a model: 'vsc2' or a path, perhaps followed by changed values: 'vsc2
    nap_us=1000'."""
    name, *changes = [
        word for word in str(model).split() if "/" not in word or word.endswith(".json")
    ]
    file = (
        pathlib.Path(name).resolve() if name.endswith(".json") else HERE / "models" / f"{name}.json"
    )
    if not changes:
        return file
    changed = {key: float(value) for key, value in (change.split("=") for change in changes)}
    values = scaled(json.loads(file.read_text()), changed.pop("kernels", 1.0)) | changed
    file = pathlib.Path(directory) / "model.json"
    file.write_text(json.dumps(values))
    return file


def scaled(values, factor):
    """Returns a model whose kernels take `factor` times as long. The runtime, launches and the
    network keep their times."""
    for kernel in values["kernels"].values():
        if "ns_per_item" not in kernel:
            sys.exit(
                f"'kernels=' scales kernels with a time for each work-item, and this one has none: {kernel}"
            )
        kernel["ns_per_item"] *= factor
    return values


def simulate(programs, app, nodes, platform, model, dcr, size, more=()):
    """Runs once. Returns the simulated and the real seconds."""
    program = programs / app
    if not program.is_file():
        sys.exit(f"{program} is missing: run tools/sim/build.sh {programs}")
    arguments = ["--json", "--kernel", str(programs / f"{app}.cl")]
    arguments += [word for option in size.split() for word in (f"--{option}".split("="))]
    arguments += more
    with tempfile.TemporaryDirectory(prefix="penstock-sim-") as directory:
        environment = dict(os.environ, WTR_SIM=str(model_file(model, directory)), WTR_DCR=dcr)
        command = [
            "smpirun",
            "-np",
            str(nodes),
            "-platform",
            str(HERE / "platforms" / f"{platform}.xml"),
            *smpi_options(),
            *simulator_options(model),
            "--log=root.thresh:warning",
            str(program),
            *arguments,
        ]
        began = time.monotonic()
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=REAL_SECONDS_MAX,
            cwd=directory,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(lines) != 1:
        sys.exit(
            f"{' '.join(command)}\nended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return json.loads(lines[0])["seconds"], time.monotonic() - began


def chosen(path, arguments):
    """Returns the rows of a table that --apps, --nodes and --dcr select. An option that is not
    given selects all."""
    lists = {"app": arguments.apps, "nodes": arguments.nodes, "dcr": arguments.dcr}
    with open(path, newline="") as file:
        return [
            row
            for row in csv.DictReader(file)
            if all(
                names is None or row[field] in names.split(",") for field, names in lists.items()
            )
        ]


def simulated(rows, arguments):
    """Yields each row with the result of its run, in order. Parallel runs do not affect each
    other's simulated times."""

    def one(row):
        return simulate(
            arguments.programs,
            row["app"],
            int(row["nodes"]),
            row["platform"],
            row["model"],
            row["dcr"],
            row["size"],
        )

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        yield from zip(rows, pool.map(one, rows))


def check(arguments):
    rows = chosen(arguments.check, arguments)
    if arguments.fast:
        rows = [row for row in rows if int(row["nodes"]) <= FAST_NODES_MAX]
    wrong = 0
    for row, (seconds, _) in simulated(rows, arguments):
        if f"{seconds:.6f}" != row["seconds"]:
            wrong += 1
            print(
                f"{row['app']} on {row['nodes']} nodes, {row['platform']}, DCR {row['dcr']}: {seconds:.6f} s, the table has {row['seconds']} s"
            )
    print(
        f"{len(rows) - wrong} of {len(rows)} simulated times are exactly those of {arguments.check}"
    )
    return 1 if wrong or not rows else 0


def again(arguments):
    rows = chosen(arguments.again, arguments)
    changed = 0
    for row, (seconds, real) in simulated(rows, arguments):
        new = dict(row, seconds=f"{seconds:.6f}")
        if new != row:
            changed += 1
            print(
                f"{','.join(row.values())}: now {new['seconds']}  # {real:.1f} s real", flush=True
            )
        store(arguments.again, new)
    print(f"{changed} of {len(rows)} simulated times of {arguments.again} have changed")
    return 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--apps", help=f"default: {APPS}")
    parser.add_argument("--nodes", help=f"default: {NODES}")
    parser.add_argument("--platform", default="ib-qdr")
    parser.add_argument("--model", default="vsc2")
    parser.add_argument("--dcr", help=f"default: {MODES}")
    parser.add_argument(
        "--size", help="the applications' options, as 'size=100 points=200' (default: paper)"
    )
    parser.add_argument("--programs", type=pathlib.Path, default=TARGET / "sim")
    parser.add_argument("--output", help="write the table there; rows of the same run are replaced")
    parser.add_argument("--check", help="run the rows of this table again")
    parser.add_argument(
        "--again", help="run the rows of this table again, and write the new times into it"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="with --check and --again: runs at the same time (default 1)",
    )
    parser.add_argument(
        "--fast", action="store_true", help=f"with --check: only up to {FAST_NODES_MAX} nodes"
    )
    arguments = parser.parse_args()
    arguments.programs = arguments.programs.resolve()
    if not shutil.which("smpirun"):
        print("SKIPPED: smpirun is missing; install the Debian package libsimgrid-dev")
        return 77
    if arguments.check:
        return check(arguments)
    if arguments.again:
        return again(arguments)
    rows = []
    for app in (arguments.apps or APPS).split(","):
        for dcr in (arguments.dcr or MODES).split(","):
            for nodes in map(int, (arguments.nodes or NODES).split(",")):
                size = arguments.size or PAPER.get(app, "paper")
                seconds, real = simulate(
                    arguments.programs, app, nodes, arguments.platform, arguments.model, dcr, size
                )
                row = dict(
                    zip(
                        FIELDS,
                        [
                            app,
                            size,
                            arguments.platform,
                            arguments.model,
                            dcr,
                            nodes,
                            f"{seconds:.6f}",
                        ],
                    )
                )
                print(
                    ",".join(str(value) for value in row.values()),
                    f"  # {real:.1f} s real",
                    flush=True,
                )
                rows.append(row)
                if arguments.output:
                    store(arguments.output, row)
    print_efficiencies(rows)
    return 0


def print_efficiencies(rows):
    """Prints T(1) / (N T(N)) for each application and for all together."""
    seconds = {(row["app"], row["dcr"], row["nodes"]): float(row["seconds"]) for row in rows}
    for dcr, nodes in sorted({(row["dcr"], row["nodes"]) for row in rows if row["nodes"] > 1}):
        apps = [
            row["app"]
            for row in rows
            if (row["dcr"], row["nodes"]) == (dcr, nodes) and (row["app"], dcr, 1) in seconds
        ]
        values = [100 * seconds[app, dcr, 1] / (nodes * seconds[app, dcr, nodes]) for app in apps]
        if values:
            each = ", ".join(f"{app} {value:.1f} %" for app, value in zip(apps, values))
            print(
                f"# efficiency, DCR {dcr}, {nodes} nodes: {each}; mean of {len(values)}: {sum(values) / len(values):.1f} %"
            )


def store(path, row):
    """Replaces or adds one row and keeps the table sorted, so that an interrupted run has stored
    its results."""
    rows = []
    if os.path.exists(path):
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
    key = lambda row: (
        row["app"],
        row["platform"],
        row["model"],
        row["size"],
        row["dcr"],
        int(row["nodes"]),
    )
    rows = sorted([old for old in rows if key(old) != key(row)] + [row], key=key)
    write_table(path, FIELDS, rows)


def write_table(path, fields, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())

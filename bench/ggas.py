#!/usr/bin/env python3
"""Speed and energy of two applications, each in two versions: with the host between the devices,
and with kernels that communicate.

Each line of the table is one run of `stencil` or `nbody`. Both versions compute the same on the
same devices: one process with two devices of PoCL, or two MPI ranks with one device each. Times are
medians over the repeats of that run. A run counts only if both results are right and equal, bit by
bit. Bars: communicating kernels are at least 2 times as fast at the smallest sizes, and never
slower.

Writes ggas.json and ggas.md into the output folder. Exits with 1 if a result is wrong, with 2 if a
bar is missed.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUN_S = 300
SMALL_LEAST = 2.0
# Two equal runs differ by some per cent if other programs share the machine. The bar "never slower"
# allows for that.
LARGE_LEAST = 0.95

# (application, options, whether the size is small)
SIZES = [
    ("stencil", {"rows": 32, "columns": 64, "steps": 2000}, True),
    ("stencil", {"rows": 128, "columns": 128, "steps": 1000}, True),
    ("stencil", {"rows": 512, "columns": 512, "steps": 500}, False),
    ("stencil", {"rows": 2048, "columns": 2048, "steps": 50}, False),
    ("nbody", {"bodies": 64, "steps": 1000}, True),
    ("nbody", {"bodies": 256, "steps": 500}, True),
    ("nbody", {"bodies": 1024, "steps": 100}, False),
    ("nbody", {"bodies": 8192, "steps": 5}, False),
]
QUICK = [
    ("stencil", {"rows": 32, "columns": 64, "steps": 200}, True),
    ("stencil", {"rows": 512, "columns": 512, "steps": 50}, False),
    ("nbody", {"bodies": 64, "steps": 100}, True),
    ("nbody", {"bodies": 1024, "steps": 20}, False),
]


def launchers(wanted):
    """Returns the ways to start a program on two devices: name, command in front, variables."""
    found = []
    if "process" in wanted:
        found.append(
            ("one process", [], {"POCL_DEVICES": "pthread pthread", "WTR_TRANSPORT": "none"})
        )
    if "mpi" in wanted:
        mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
        if mpirun:
            command = [mpirun, "--oversubscribe", "--bind-to", "none", "-n", "2"]
            found.append(("2 ranks", command, {"POCL_DEVICES": "pthread"}))
        else:
            print("left out: 2 ranks (no mpirun)", file=sys.stderr)
    if "proxy" in wanted and any(name == "2 ranks" for name, _, _ in found):
        _, command, variables = found[-1]
        found.append(("2 ranks, proxy", command, variables | {"PROXY": "1"}))
    return found


def build(out, libraries):
    make = [
        "make",
        "-s",
        "-f",
        "applications.mk",
        "-C",
        str(HERE.parent / "examples/ggas"),
        f"OUT={out}",
        f"LIBRARIES={libraries}",
        f"RPATH={libraries}",
    ]
    subprocess.run(make, check=True)


def run(out, app, options, way, repeat, idle, realtime):
    name, front, variables = way
    command = (
        (["chrt", "-r", "1"] if realtime else [])
        + front
        + [str(out / app), "--json", "--verify", "--repeat", str(repeat)]
    )
    for key, value in options.items():
        command += [f"--{key}", str(value)]
    if idle:
        command += ["--idle", str(idle)]
    if "PROXY" in variables:
        command.append("--proxy")
    environment = (
        os.environ
        | variables
        | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    )
    environment.pop("PENSTOCK_NODES", None)
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        stdin=subprocess.DEVNULL,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode not in (0, 1) or len(lines) != 1:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(lines[0]) | {"way": name}


def joules(version):
    return "unavailable" if version["joules"] is None else f"{version['joules']:.3g}"


def step(seconds, steps):
    return f"{seconds / steps * 1e6:,.1f}"


def table(rows):
    head = [
        "application",
        "size",
        "devices in",
        "path",
        "host, µs a step",
        "kernels, µs a step",
        "times as fast",
        "host, core-µs a step",
        "kernels, core-µs a step",
        "host, J",
        "kernels, J",
        "right and equal",
    ]
    lines = ["| " + " | ".join(head) + " |", "|---|---|---|---|" + "---:|" * 7 + "---|"]
    for row in rows:
        size = (
            f"{row['rows']} x {row['columns']}"
            if row["app"] == "stencil"
            else f"{row['bodies']} bodies"
        )
        host, device, steps = row["host"], row["device"], row["steps"]
        lines.append(
            "| "
            + " | ".join(
                [
                    row["app"],
                    size,
                    row["way"],
                    row["path"],
                    step(host["seconds"], steps),
                    step(device["seconds"], steps),
                    f"{row['speedup']:.2f}",
                    step(host["core_seconds"], steps),
                    step(device["core_seconds"], steps),
                    joules(host),
                    joules(device),
                    "yes" if row["verified"] else "NO",
                ]
            )
            + " |"
        )
    return "\n".join(lines)


def options_of_the_command():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--libraries",
        default=HERE.parent / "target/release",
        type=Path,
        help="folder of libwater.so and libpenstock_energy.so",
    )
    parser.add_argument(
        "--out", type=Path, help="folder for ggas.json and ggas.md (default: they are only printed)"
    )
    parser.add_argument(
        "--ways", default="process,mpi", help="of process, mpi, proxy (default: process,mpi)"
    )
    parser.add_argument("--repeat", type=int, default=5, help="runs of each version (default 5)")
    parser.add_argument(
        "--idle", type=float, default=0, help="seconds of idle power before and after each version"
    )
    parser.add_argument(
        "--groups", type=int, default=1, help="work-groups of each device (default 1)"
    )
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="run both versions with real-time priority (chrt): where other programs use the machine, too, waits that spin "
        "and give way would measure those",
    )
    parser.add_argument("--quick", action="store_true", help="fewer sizes and steps")
    return parser.parse_args()


def measure(chosen, libraries):
    """Runs each application of each size in each way, and returns the rows of the table."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        build(out, libraries)
        for app, options, small in QUICK if chosen.quick else SIZES:
            for way in launchers(chosen.ways.split(",")):
                options_there = options | {"groups": chosen.groups}
                row = run(out, app, options_there, way, chosen.repeat, chosen.idle, chosen.realtime)
                row["speedup"] = row["host"]["seconds"] / row["device"]["seconds"]
                # The bars apply to memory that devices share. The proxy's figures are only
                # reported.
                row["least"] = (
                    None if row["path"] == "proxy" else SMALL_LEAST if small else LARGE_LEAST
                )
                rows.append(row)
                print(
                    f"{app} {options} {way[0]}: {row['speedup']:.2f} times as fast", file=sys.stderr
                )
    return rows


def keep(chosen, rows, text):
    """Writes the files into the output folder."""
    chosen.out.mkdir(parents=True, exist_ok=True)
    about = {
        "machine": f"Linux {platform.release().partition('-')[0]}",
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "repeat": chosen.repeat,
        "realtime": chosen.realtime,
    }
    (chosen.out / "ggas.json").write_text(
        json.dumps({"about": about, "rows": rows}, indent=1) + "\n"
    )
    (chosen.out / "ggas.md").write_text(text + "\n")


def main():
    chosen = options_of_the_command()
    libraries = chosen.libraries.resolve()
    if not (libraries / "libwater.so").exists():
        sys.exit(
            f"there is no libwater.so in {libraries}: run `make build`, or name its folder with --libraries"
        )
    rows = measure(chosen, libraries)
    text = table(rows)
    print(text)
    reasons = {
        version["unavailable"]
        for row in rows
        for version in (row["host"], row["device"])
        if version["joules"] is None
    }
    for reason in sorted(reasons):
        print(f"\njoules are unavailable: {reason}")
    if chosen.out:
        keep(chosen, rows, text)
    wrong = [row for row in rows if not row["verified"]]
    missed = [row for row in rows if row["least"] and row["speedup"] < row["least"]]
    for row in missed:
        print(
            f"bar missed: {row['app']} {row['way']}: {row['speedup']:.2f} times as fast, at least {row['least']} is wanted",
            file=sys.stderr,
        )
    sys.exit(1 if wrong else 2 if missed else 0)


if __name__ == "__main__":
    main()

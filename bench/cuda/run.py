#!/usr/bin/env python3
"""The cost of CUDA on OpenCL devices: programs compared with hand-written OpenCL programs, and
calls compared with bars.

    bench/cuda/run.py [--rounds N] [--device pocl|intel|both] [--only programs|calls] [--json FILE]

Programs: a CUDA program and an OpenCL program run on the same device in the same run, on a pool of
one node. The CUDA program (unmodified, examples/cuda) uses libcudart, libcuda and the translation
of its PTX. The OpenCL program uses libpenstock_opencl.so. They take turns, and the figure is the
median of the times that they print. The ratio is the speed of the translated program relative to
the hand-written one; the bar is 0.7.

Calls: the figures of bench/cudabench.c through a Unix socket, compared with the local OpenCL
platform; and large copies over TCP, compared with a bare TCP connection of this machine
(bench/limits.c).
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BIN = Path(os.environ.get("PENSTOCK_BIN", TARGET / "release"))
BAR = 0.7
LIMIT_S = 120
# cudabench takes medians itself. Each round is a connection of its own, whose ends may be on one
# core or on two (see below).
CALL_ROUNDS_MAX = 15

# Name, CUDA program, OpenCL program, and arguments for each device. With these sizes a launch takes
# some milliseconds.
PAIRS = [
    (
        "matrixMul",
        "matrixMul",
        "matrix_mul",
        {
            "pocl": ["--size", "512", "--repeats", "5"],
            "intel": ["--size", "1024", "--repeats", "10"],
        },
    ),
    (
        "BlackScholes",
        "BlackScholes",
        "black_scholes",
        {
            "pocl": ["--size", "1000000", "--repeats", "10"],
            "intel": ["--size", "4000000", "--repeats", "10"],
        },
    ),
]
VENDORS = {"pocl": Path("/etc/OpenCL/vendors"), "intel": ROOT / ".venv-cuda/vendors"}


# Rows of cudabench with a bar: the figure, whether it is an upper or a lower bound, and the bound.
# The ratio is that of speeds.
CALL_BARS = [
    ("synchronize after a 4 B copy", "cuda", "most", 25),
    ("write 4 B, waited for", "cuda", "most", 25),
    ("read 4 B, waited for", "cuda", "most", 25),
    ("queued launch", "cuda", "most", 1),
    # Compared with hand-written kernels for the local platform: an empty one, and one that stores a
    # different number at each launch.
    ("each of 100,000 launches", "ratio", "least", 0.7),
    ("each of 100,000 that store", "ratio", "least", 0.7),
    ("write 16 MiB", "ratio", "least", 0.8),
    ("read 16 MiB", "ratio", "least", 0.8),
]
# The rate of a bare connection: limits.c measures several congestion controls; the best of their
# medians over the rounds counts. Comparing the best round of one side with the median of the other
# would compare luck: if the scheduler puts both ends of a connection on one core, 16 MiB take some
# 4 ms, otherwise 2.5. So both run in turn.
RAW_TCP = {"write 16 MiB": "16 MiB there, 1 B back", "read 16 MiB": "1 B there, 16 MiB back"}
RAW_TCP_BAR = 0.9


class Pool:
    """A daemon, and the environment that leads a program to it."""

    def __init__(self, device, tcp=False):
        self.folder = tempfile.TemporaryDirectory(prefix="penstock-bench.")
        folder = Path(self.folder.name)
        (folder / "vendors").mkdir()
        (folder / "vendors/penstock.icd").write_text(f"{BIN / 'libpenstock_opencl.so'}\n")
        serve = dict(
            os.environ,
            OCL_ICD_VENDORS=str(VENDORS[device]),
            OPENCL_VENDOR_PATH=str(VENDORS[device]),
            POCL_DEVICES="pthread",
        )
        self.env = dict(
            os.environ,
            OCL_ICD_VENDORS=str(folder / "vendors"),
            OPENCL_VENDOR_PATH=str(folder / "vendors"),
            LD_LIBRARY_PATH=str(BIN / "cuda"),
        )
        address = f"unix:{folder}/node.sock"
        if tcp:
            address = "tcp:127.0.0.1:0"
            serve["PENSTOCK_KEY"] = self.env["PENSTOCK_KEY"] = str(folder / "key")
            subprocess.run(
                [BIN / "penstock", "key", "--create"],
                env=serve,
                stdout=subprocess.DEVNULL,
                check=True,
            )
        self.log = open(folder / "daemon.log", "w")
        self.daemon = subprocess.Popen(
            [BIN / "penstock", "serve", "--listen", address],
            env=serve,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        # The first line says where the daemon listens. It is empty if the daemon cannot start.
        line = self.daemon.stdout.readline()
        if not line.startswith("listening on "):
            sys.exit(f"the daemon did not start: {(folder / 'daemon.log').read_text()}")
        self.env["PENSTOCK_NODES"] = line.removeprefix("listening on ").strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.daemon.terminate()
        self.daemon.wait(timeout=10)
        self.log.close()
        self.folder.cleanup()


def took_ms(program, arguments, env):
    """Runs the program once. It must report a right result."""
    done = subprocess.run(
        [program, *arguments], env=env, capture_output=True, text=True, timeout=LIMIT_S
    )
    if done.returncode != 0 or not done.stdout.rstrip().endswith("Test passed"):
        sys.exit(
            f"{program} {' '.join(arguments)} ended with code {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    found = re.search(r", ([0-9.]+) ms,", done.stdout)
    if found is None:
        sys.exit(f"{program} prints no time:\n{done.stdout}")
    return float(found.group(1))


def measured_calls(program, env):
    """Returns the rows of cudabench: name, unit, CUDA's figure, OpenCL's, and their ratio; None for
    a missing figure."""
    done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        sys.exit(f"{program} ended with code {done.returncode}:\n{done.stdout}{done.stderr}")
    rows = {}
    for line in done.stdout.splitlines():
        found = re.match(
            r"([^#]+?)\s+(us|MB/s)\s+([0-9.]+|-)\s+([0-9.]+|-)(?:\s+([0-9.]+))?$", line
        )
        if found:
            name, unit, *figures = found.groups()
            rows[name] = dict(
                zip(
                    ("unit", "cuda", "opencl", "ratio"),
                    (
                        unit,
                        *(float(value) if value and value != "-" else None for value in figures),
                    ),
                )
            )
    return rows


def median_calls(runs):
    result = {}
    for name, first in runs[0].items():
        result[name] = {"unit": first["unit"]}
        for column in ("cuda", "opencl"):
            values = [run[name][column] for run in runs if run[name][column] is not None]
            result[name][column] = statistics.median(values) if values else None
        here, there = result[name]["cuda"], result[name]["opencl"]
        result[name]["ratio"] = (
            None
            if here is None or there is None
            else here / there
            if first["unit"] == "MB/s"
            else there / here
        )
    return result


def raw_tcp(program):
    """Runs limits.c once. Returns the rows of bare TCP connections."""
    rows = json.loads(
        subprocess.run(
            [program], capture_output=True, text=True, timeout=LIMIT_S, check=True
        ).stdout
    )["rows"]
    return [row for row in rows if row["name"].startswith("TCP loopback")]


def best_of(rows):
    """Returns, for each row, the median of the best congestion control in MB/s."""
    ways = {}
    for row in rows:
        ways.setdefault(row["name"], []).append(row["value"] / 1e6)
    return {
        name: max(statistics.median(values) for way, values in ways.items() if way.endswith(what))
        for name, what in RAW_TCP.items()
    }


def calls(out, rounds):
    """Prints the cost of calls. Returns the rows with a bar."""
    rows = []
    text = lambda value: "-" if value is None else f"{value:.2f}"
    with Pool("pocl") as pool:
        # OpenCL's figures come from the local platform.
        env = dict(
            pool.env,
            OCL_ICD_VENDORS=str(VENDORS["pocl"]),
            OPENCL_VENDOR_PATH=str(VENDORS["pocl"]),
            POCL_DEVICES="pthread",
        )
        measured = median_calls([measured_calls(out / "cudabench", env) for _ in range(rounds)])
    print(
        f"\n{'call (Unix socket, PoCL)':34} {'unit':5} {'CUDA':>9} {'local CL':>9} {'ratio':>6}  bar"
    )
    bars = {name: rest for name, *rest in CALL_BARS}
    for name, row in measured.items():
        note = ""
        if name in bars:
            column, direction, limit = bars[name]
            met = row[column] is not None and (
                row[column] <= limit if direction == "most" else row[column] >= limit
            )
            note = f"{'at most' if direction == 'most' else 'ratio at least'} {limit}: {'met' if met else 'NOT'}"
            rows.append({"call": name, "way": "unix", **row, "bar": limit, "met": met})
        print(
            f"{name:34} {row['unit']:5} {text(row['cuda']):>9} {text(row['opencl']):>9} {text(row['ratio']):>6}  {note}"
        )

    raw, runs = [], []
    with Pool("pocl", tcp=True) as pool:
        env = dict(
            pool.env,
            OCL_ICD_VENDORS=str(VENDORS["pocl"]),
            OPENCL_VENDOR_PATH=str(VENDORS["pocl"]),
            POCL_DEVICES="pthread",
        )
        for _ in range(rounds):
            raw += raw_tcp(out / "limits")
            runs.append(measured_calls(out / "cudabench", env))
    limits, measured = best_of(raw), median_calls(runs)
    print(
        f"\n{'call (TCP on this host, PoCL)':34} {'unit':5} {'CUDA':>9} {'bare TCP':>9} {'ratio':>6}  bar"
    )
    for name, row in measured.items():
        limit = limits.get(name)
        ratio = None if limit is None else row["cuda"] / limit
        note = (
            ""
            if ratio is None
            else f"ratio at least {RAW_TCP_BAR}: {'met' if ratio >= RAW_TCP_BAR else 'NOT'}"
        )
        if ratio is not None:
            rows.append(
                {
                    "call": name,
                    "way": "tcp",
                    **row,
                    "raw_tcp": limit,
                    "ratio": ratio,
                    "bar": RAW_TCP_BAR,
                    "met": ratio >= RAW_TCP_BAR,
                }
            )
        print(
            f"{name:34} {row['unit']:5} {text(row['cuda']):>9} {text(limit):>9} {text(ratio):>6}  {note}"
        )
    return rows


def build(out):
    for folder in ("examples/cuda", "bench/cuda"):
        made = subprocess.run(
            ["make", "-C", ROOT / folder, "-j2", "--no-print-directory", f"OUT={out}"],
            capture_output=True,
            text=True,
        )
        if made.returncode != 0:
            sys.exit(f"{folder} does not build:\n{made.stdout}{made.stderr}")


def programs(out, options):
    """Prints the speed of translated programs. Returns the rows."""
    rows = []
    print(f"{'program':14} {'device':6} {'CUDA ms':>10} {'OpenCL ms':>10} {'ratio':>6}  {'bar':>4}")
    for device in ["pocl", "intel"] if options.device == "both" else [options.device]:
        if not VENDORS[device].is_dir():
            print(f"SKIPPED: no {device} in {VENDORS[device]}: run `tools/setup.sh cuda`")
            continue
        with Pool(device) as pool:
            for name, cuda, opencl, arguments in PAIRS:
                times = {cuda: [], opencl: []}
                for _ in range(options.rounds):
                    for program in (cuda, opencl):
                        times[program].append(took_ms(out / program, arguments[device], pool.env))
                medians = [statistics.median(times[program]) for program in (cuda, opencl)]
                ratio = medians[1] / medians[0]
                rows.append(
                    {
                        "program": name,
                        "device": device,
                        "cuda_ms": times[cuda],
                        "opencl_ms": times[opencl],
                        "ratio": ratio,
                        "bar": BAR,
                        "met": ratio >= BAR,
                    }
                )
                print(
                    f"{name:14} {device:6} {medians[0]:10.3f} {medians[1]:10.3f} {ratio:6.2f}  {'met' if ratio >= BAR else 'NOT':>4}",
                    flush=True,
                )
    return rows


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="times that each program is run (default 7)"
    )
    parser.add_argument("--device", choices=["pocl", "intel", "both"], default="both")
    parser.add_argument("--only", choices=["programs", "calls"])
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args()
    out = TARGET / "cuda/examples"
    build(out)

    rows = [] if options.only == "calls" else programs(out, options)
    if options.only != "programs":
        rows += calls(out, min(options.rounds, CALL_ROUNDS_MAX))
    if options.json:
        options.json.write_text(
            json.dumps({"rounds": options.rounds, "rows": rows}, indent=1) + "\n"
        )
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures what encryption costs: `clbench` over plain and over encrypted TCP on this host.

Two daemons run at the same time, one that accepts only plain links and one that accepts only
encrypted links. Each round runs `clbench` over both, in turn, so that varying load of the machine
affects both. Prints the medians of the rounds and their ratios as JSON, and fails unless the bars
are met.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import run

# The bars: encrypted over plain, as the share of the speed that is left. In rows of times a share
# of 0.9 is a time that is longer by a tenth.
BARS = {
    "write 16 MiB to its end": 0.7,
    "blocking read 16 MiB": 0.7,
    "launch and finish, median": 0.9,
    "10,000 kernels in order": 0.9,
}
WAYS = {"plain": "never", "encrypted": "always"}
GROUPS = ("launch", "transfer")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer samples in each round")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="encryption-") as folder:
        report = measure(args, Path(folder))
    print(json.dumps(report, indent=2))
    failed = [row["row"] for row in report if not row["met"]]
    sys.exit(f"not met: {', '.join(failed)}" if failed else 0)


def measure(args, folder):
    places = run.Places()
    pool = run.Pool(places, folder / "pool")
    # Keys of its own: this measurement pins no node of the user.
    pool.base["XDG_CONFIG_HOME"] = str(folder)
    environments = {}
    try:
        for way, rule in WAYS.items():
            options = {"POCL_DEVICES": "pthread", "PENSTOCK_ENCRYPTION": rule}
            address = pool.serve("tcp:127.0.0.1:0", **options)
            environments[way] = dict(pool.env(address), **options)
        samples = {way: [] for way in WAYS}
        for number in range(args.rounds):
            order = list(WAYS)
            for way in order[number % 2 :] + order[: number % 2]:
                samples[way].append(one_round(places, environments[way], args.quick))
                print(f"round {number + 1} of {args.rounds}: {way}", file=sys.stderr)
    finally:
        pool.stop()
    return [compare(row, samples) for row in BARS]


def one_round(places, env, quick):
    rows = {}
    for group in GROUPS:
        command = [places.clbench, "--only", group, *(["--quick"] if quick else [])]
        rows |= run.rows_of(run.run_json(command, env))
    return rows


def compare(row, samples):
    medians = {
        way: statistics.median(rows[row][1] for rows in rounds) for way, rounds in samples.items()
    }
    unit = samples["plain"][0][row][0]
    share = medians["encrypted"] / medians["plain"]
    if not unit.endswith("/s"):
        share = 1 / share
    return {"row": row, "unit": unit, **medians, "share": share, "met": share >= BARS[row]}


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures what the confinement of workers costs: `clbench` over a Unix socket, with workers that
are not confined and with workers at the level `full`.

Prints the medians of the rounds and their ratios as JSON, and fails if a row has lost more than the
bar allows.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import twins

# The bar: no figure falls by more than 3 %.
SHARE_MIN = 0.97
WAYS = {"off": {"PENSTOCK_CONFINE": "off"}, "full": {"PENSTOCK_CONFINE": "full"}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer samples in each round")
    parser.add_argument("--only", action="append", default=[], help="a group of clbench")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="confinement-") as folder:
        listen = f"unix:{folder}/WAY"
        samples = twins.measure(Path(folder), listen, WAYS, args.only, args.rounds, args.quick)
    report = [twins.compare(row, samples, *WAYS) for row in samples["off"][0]]
    print(json.dumps(report, indent=2))
    failed = [f"{row['row']} ({row['share']:.2f})" for row in report if row["share"] < SHARE_MIN]
    sys.exit(f"not met: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures what encryption costs: `clbench` over plain and over encrypted TCP on this host.

Prints the medians of the rounds and their ratios as JSON, and fails unless the bars are met.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import twins

# The bars: encrypted over plain, as the share of the speed that is left.
BARS = {
    "write 16 MiB to its end": 0.7,
    "blocking read 16 MiB": 0.7,
    "launch and finish, median": 0.9,
    "10,000 kernels in order": 0.9,
}
WAYS = {"plain": {"PENSTOCK_ENCRYPTION": "never"}, "encrypted": {"PENSTOCK_ENCRYPTION": "always"}}
GROUPS = ("launch", "transfer")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer samples in each round")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="encryption-") as folder:
        # Keys of its own: this measurement pins no node of the user.
        samples = twins.measure(
            Path(folder),
            "tcp:127.0.0.1:0",
            WAYS,
            GROUPS,
            args.rounds,
            args.quick,
            {"XDG_CONFIG_HOME": folder},
        )
    report = [twins.compare(row, samples, *WAYS) for row in BARS]
    for row in report:
        row["met"] = row["share"] >= BARS[row["row"]]
    print(json.dumps(report, indent=2))
    failed = [row["row"] for row in report if not row["met"]]
    sys.exit(f"not met: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()

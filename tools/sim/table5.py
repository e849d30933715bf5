#!/usr/bin/env python3
"""Simulates the paper's Table 5: shares of the work on devices of different speed, with the paper's
own times of single devices.

    tools/sim/table5.py [--programs DIR] [--output FILE]
"""

import argparse
import json
import pathlib
import sys
import tempfile

import run

# The ranks of the devices in models/mc.json, in the order of Table 5.
RANKS = ["0", "0", "1", "2"]
# Configuration: shares in %, seconds in the paper.
TABLE = {
    "matrix_mul": {
        "C1": ((100, 0, 0, 0), 63.3),
        "C2": ((50, 50, 0, 0), 32.5),
        "C3": ((0, 0, 100, 0), 29.4),
        "C4": ((0, 0, 0, 100), 68.4),
        "C5": ((35, 0, 65, 0), 23.7),
        "C6": ((25, 25, 50, 0), 19.0),
        "C7": ((0, 0, 75, 25), 26.6),
        "C8": ((22, 22, 44, 12), 17.3),
        "ideal": ((1 / 63.3, 1 / 63.3, 1 / 29.4, 1 / 68.4), None),
    },
    "floyd": {
        "C1": ((100, 0, 0, 0), 101.6),
        "C2": ((50, 50, 0, 0), 51.3),
        "C3": ((0, 0, 100, 0), 14.9),
        "C4": ((0, 0, 0, 100), 58.3),
        "C5": ((2, 0, 98, 0), 17.3),
        "C6": ((1, 1, 98, 0), 16.0),
        "C7": ((0, 0, 99, 1), 13.1),
        "C8": ((0.5, 0.5, 98, 1), 16.3),
    },
}
FIELDS = ["app", "configuration", "shares", "dcr", "seconds", "paper"]
NODES = 3


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=pathlib.Path, default=run.TARGET / "sim")
    parser.add_argument("--apps", default=",".join(TABLE))
    parser.add_argument("--dcr", default="auto")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    rows = []
    for app in arguments.apps.split(","):
        for name, (shares, paper) in TABLE[app].items():
            used = [place for place, share in enumerate(shares) if share > 0]
            # smpirun splits arguments at spaces, so a query cannot select devices. Instead, unused
            # devices are removed from the model.
            model = json.loads((run.HERE / "models/mc.json").read_text())
            for rank in model["ranks"]:
                count = sum(1 for place in used if RANKS[place] == rank)
                model["ranks"][rank] = [
                    dict(device, count=count) for device in model["ranks"][rank] if count
                ]
            more = ["--weights", ",".join(str(shares[place]) for place in used)]
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump(model, file)
                file.flush()
                seconds, _ = run.simulate(
                    arguments.programs.resolve(),
                    app,
                    NODES,
                    "ib-qdr",
                    file.name,
                    arguments.dcr,
                    "paper",
                    more,
                )
            total = sum(shares)
            text = "/".join(f"{100 * share / total:.4g}" for share in shares)
            rows.append(
                dict(
                    zip(
                        FIELDS,
                        [
                            app,
                            name,
                            text,
                            arguments.dcr,
                            f"{seconds:.6f}",
                            "" if paper is None else paper,
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

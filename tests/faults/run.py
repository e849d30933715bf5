#!/usr/bin/env python3
"""Kills clients, workers and daemons in the middle of their work, and checks what is left.

    tests/faults/run.py [--times N] [CASE...]

After each kill, the survivors must get an OpenCL error, or not notice it, and another client's
results must stay right. At the end no process, socket or shared memory may be left. Further cases:
silent connections, garbage, frames that are truncated or announce too much, wrong keys. The lane
`perf` judges how soon the errors come. Prints one line per case; the last line counts them.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cases
from node import BIN, build_load
from patience import CASE_S, LANE, runs, wait_for
from processes import left_memory, shared_memory
from tally import Tally

# The bar of the project is 100.
TIMES = {"test": 2, "all": 20, "perf": 20}


def perform(count, name, act, times, kind):
    folder = tempfile.mkdtemp(prefix="penstock-fault.")
    before = shared_memory()
    with count.case(f"fault/{name} {kind}", limit_s=CASE_S * (1 + times // 10)) as case:
        case.note = act(times, kind, folder) or ""
        wait_for(
            lambda: not left_memory(before), lambda: f"shared memory left: {left_memory(before)}"
        )
    if case.failed:
        for log in sorted(Path(folder).glob("daemon*.log")):
            for line in log.read_text().splitlines()[-8:]:
                print(f"        | {log.name}: {line}")
    shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=TIMES[LANE], help="kills per case")
    parser.add_argument("case", nargs="*", help="parts of the names of the cases")
    arguments = parser.parse_args()
    if not (BIN / "penstock").exists():
        sys.exit(f"no penstock in {BIN}: run `make build` first")
    build_load()
    wanted = [
        (name if not runs("perf") else f"{name}, in time", act, kind)
        for name, (act, kinds) in cases.CASES.items()
        if name in cases.IN_TIME or not runs("perf")
        if not arguments.case or any(part in name for part in arguments.case)
        for kind in kinds
    ]
    count = Tally("faults")
    count.plan(len(wanted))
    for name, act, kind in wanted:
        perform(count, name, act, arguments.times, kind)
    return count.end()


sys.exit(main())

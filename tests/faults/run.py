#!/usr/bin/env python3
"""Kills clients, workers and daemons in the middle of their work, and checks what is left.

    tests/faults/run.py [--times N] [CASE...]

After each kill, the survivors must get an OpenCL error within 2 seconds, or not notice it, and
another client's results must stay right. At the end no process, socket or shared memory may be
left. Further cases: silent connections, garbage, frames that are truncated or announce too much,
wrong keys. Prints one line per case; the last line counts them.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cases
import tally
from node import BIN, Fault, build_load, wait_for
from processes import left_memory, shared_memory


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--times",
        type=int,
        default=5,
        help="kills per case (default 5; the bar of the project is 100)",
    )
    parser.add_argument("case", nargs="*", help="parts of the names of the cases")
    arguments = parser.parse_args()
    if not (BIN / "penstock").exists():
        sys.exit(f"no penstock in {BIN}: run `make build` first")
    build_load()
    passed = failed = 0
    for name, (case, kinds) in cases.CASES.items():
        if arguments.case and not any(part in name for part in arguments.case):
            continue
        for kind in kinds:
            folder = tempfile.mkdtemp(prefix="penstock-fault.")
            before, started, note = shared_memory(), time.monotonic(), ""
            try:
                note = case(arguments.times, kind, folder) or ""
                wait_for(
                    lambda: not left_memory(before),
                    5,
                    lambda: f"shared memory left: {left_memory(before)}",
                )
                verdict = "ok"
            except (Fault, subprocess.SubprocessError, OSError) as fault:
                verdict, note = "FAIL", str(fault) or type(fault).__name__
            took = f"{time.monotonic() - started:.1f} s"
            print(f"{verdict:<4} {'fault/' + name:<20} {kind:<5} {took:>8}  {note}", flush=True)
            if verdict == "FAIL":
                failed += 1
                for log in sorted(Path(folder).glob("daemon*.log")):
                    print(
                        "".join(
                            f"        | {log.name}: {line}\n"
                            for line in log.read_text().splitlines()[-8:]
                        ),
                        end="",
                    )
            else:
                passed += 1
            shutil.rmtree(folder, ignore_errors=True)
    return tally.tell(passed, failed)


sys.exit(main())

#!/usr/bin/env python3
"""Lets guests fall silent and kills them, and checks what the host, other guests and other clients
see.

    tests/guests/faults.py [--transport NAME] [--times N] [CASE...]

The guests are emulated, so this needs neither KVM nor root. `tools/setup.sh guest` installs what
it needs. Prints one line per case; the last line counts them.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fault_cases
import tally
from guest import missing
from node import BIN, Fault, build_load, wait_for
from processes import left_memory, shared_memory


def perform(case, times, transport):
    """Runs a case and returns its verdict and a note."""
    # Paths of sockets are short.
    folder = tempfile.mkdtemp(prefix="penstock-g.", dir="/tmp")
    before = shared_memory()
    try:
        note = case(times, folder, transport) or ""
        wait_for(
            lambda: not left_memory(before),
            lambda: f"shared memory left: {left_memory(before)}",
        )
        return "ok", note
    except (Fault, subprocess.SubprocessError, OSError) as fault:
        log = Path(folder, "daemon0.log")
        lines = log.read_text().splitlines()[-8:] if log.exists() else []
        told = "".join(f"\n        | {line}" for line in lines)
        return "FAIL", f"{fault or type(fault).__name__}{told}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--times",
        type=int,
        default=3,
        help="guests that are killed (default 3; the bar of the project is 100)",
    )
    parser.add_argument(
        "--transport",
        choices=["vsock", "shm"],
        default="vsock",
        help="vsock, or shm: memory that guest and host share, beside vsock (default vsock)",
    )
    parser.add_argument("case", nargs="*", help="parts of the names of the cases")
    arguments = parser.parse_args()
    if not (BIN / "penstock").exists():
        sys.exit(f"no penstock in {BIN}: run `make build` first")
    lack = missing()
    counts = {"ok": 0, "FAIL": 0, "SKIP": 0}
    build_load()
    for name, case in fault_cases.CASES.items():
        if arguments.case and not any(part in name for part in arguments.case):
            continue
        started = time.monotonic()
        if lack:
            is_required = "guest" in os.environ.get("PENSTOCK_TEST_REQUIRE", "").split(",")
            verdict, note = "FAIL" if is_required else "SKIP", lack
        else:
            verdict, note = perform(case, arguments.times, arguments.transport)
        counts[verdict] += 1
        took = f"{time.monotonic() - started:.1f} s"
        title = f"guests/{name} {arguments.transport}"
        print(f"{verdict:<4} {title:<20} {took:>8}  {note}", flush=True)
    return tally.tell(*counts.values())


sys.exit(main())

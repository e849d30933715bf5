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
from pathlib import Path

import fault_cases
from guest import missing
from node import BIN, Fault, build_load
from patience import CASE_S, LANE, chosen, wait_for
from processes import left_memory, shared_memory
from tally import Skipped, Tally

# The bar of the project is 100.
TIMES = {"test": 1, "all": 10, "perf": 10}


def perform(case, times, transport):
    """Runs a case. Returns its note."""
    # Paths of sockets are short.
    folder = tempfile.mkdtemp(prefix="penstock-g.", dir="/tmp")
    before = shared_memory()
    try:
        note = case(times, folder, transport) or ""
        wait_for(
            lambda: not left_memory(before),
            lambda: f"shared memory left: {left_memory(before)}",
        )
        return note
    except (AssertionError, subprocess.SubprocessError, OSError) as fault:
        log = Path(folder, "daemon0.log")
        lines = log.read_text().splitlines()[-8:] if log.exists() else []
        told = "".join(f"\n        | {line}" for line in lines)
        raise Fault(f"{fault or type(fault).__name__}{told}") from fault
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=TIMES[LANE], help="guests that are killed")
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
    wanted = chosen(list(fault_cases.CASES.values()), arguments.case, lambda case: case.__name__)
    count = Tally("guests-faults")
    count.plan(len(wanted))
    build_load()
    for act in wanted:
        name = f"guests/{act.__name__} {arguments.transport}"
        with count.case(name, CASE_S * (2 + arguments.times)) as case:
            is_required = "guest" in os.environ.get("PENSTOCK_TEST_REQUIRE", "").split(",")
            assert not lack or not is_required, lack
            if lack:
                raise Skipped(lack)
            case.note = perform(act, arguments.times, arguments.transport)
    return count.end()


sys.exit(main())

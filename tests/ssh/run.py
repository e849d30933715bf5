#!/usr/bin/env python3
"""Uses nodes over SSH, through servers of the test on loopback ports.

    tests/ssh/run.py [--at-once N] [PART OF A NAME...]

Prints one line per case; the last line counts them. Needs Debian's openssh-server and
openssh-client, and starts no service.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from server import BIN, SSHD, Fault, Place

import cases
import direct
import tally
from node import build_load


def run(case, servers, direct):
    """Returns whether the case passed, and its line."""
    # Paths of sockets are short.
    folder = tempfile.mkdtemp(prefix="ps.", dir="/tmp")
    started, note, place = time.monotonic(), "", None
    try:
        # Two nodes on one host would reach each other by Unix sockets.
        are_apart = direct and servers > 1 and os.getuid() == 0
        place = Place(folder, servers, direct, are_apart=are_apart)
        note, verdict = case(place) or "", "ok"
    except (Fault, AssertionError, subprocess.SubprocessError, OSError) as fault:
        verdict, note = "FAIL", str(fault) or type(fault).__name__
        logs = [*Path(folder).rglob("sshd.log"), *Path(folder).rglob("daemon.log")]
        for log in logs:
            lines = log.read_text(errors="replace").splitlines()[-12:]
            note += "".join(f"\n        | {log.name}: {line[:160]}" for line in lines)
    finally:
        if place:
            place.close()
        shutil.rmtree(folder, ignore_errors=True)
    took = f"{time.monotonic() - started:.1f} s"
    return verdict == "ok", f"{verdict:<4} {'ssh/' + case.__name__:<42} {took:>8}  {note}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    # The cases wait more than they work.
    parser.add_argument("--at-once", type=int, default=3, help="cases at the same time (3)")
    parser.add_argument("case", nargs="*", help="parts of the names of the cases")
    arguments = parser.parse_args()
    if not (BIN / "penstock").exists():
        sys.exit(f"no penstock in {BIN}: run `make build` first")
    if not Path(SSHD).exists():
        print(f"no {SSHD}: install openssh-server")
        # The setup that installs OpenSSL installs the server, too.
        is_set_up = "openssl" in os.environ.get("PENSTOCK_TEST_REQUIRE", "").split(",")
        return 1 if is_set_up else 77
    build_load()
    known = [(case, servers, False) for case, servers in cases.CASES.items()]
    known += [(case, servers, True) for case, servers in direct.CASES.items()]
    wanted = [
        it
        for it in known
        if not arguments.case or any(part in it[0].__name__ for part in arguments.case)
    ]
    passed = 0
    with ThreadPoolExecutor(arguments.at_once) as pool:
        running = [pool.submit(run, *it) for it in wanted]
        for future in running:
            is_right, line = future.result()
            passed += is_right
            print(line, flush=True)
    return tally.tell(passed, len(wanted) - passed)


sys.exit(main())

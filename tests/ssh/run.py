#!/usr/bin/env python3
"""Uses nodes over SSH, through servers of the test on loopback ports.

    tests/ssh/run.py [--part N/OF] [PART OF A NAME...]

With --part 1/2 and --part 2/2, two parallel runs share the cases, which wait more than they work.
Prints one line per case; the last line counts them. Needs Debian's openssh-server and
openssh-client, and starts no service.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from server import BIN, SSHD, Place

import cases
import direct
from node import build_load
from patience import chosen
from tally import Skipped, Tally, part_of

# The cases, each with its number of servers, and whether it has direct connections beside SSH.
SERVERS = cases.CASES | direct.CASES


def perform(count, act):
    # Paths of sockets are short.
    folder, place = tempfile.mkdtemp(prefix="ps.", dir="/tmp"), None
    with count.case(f"ssh/{act.__name__.replace('_', ' ')}") as case:
        if not Path(SSHD).exists():
            # The setup that installs OpenSSL installs the server, too.
            is_set_up = "openssl" in os.environ.get("PENSTOCK_TEST_REQUIRE", "").split(",")
            assert not is_set_up, f"no {SSHD}: install openssh-server"
            raise Skipped(f"no {SSHD}: install openssh-server")
        try:
            # Two nodes on one host would reach each other by Unix sockets.
            is_direct, servers = act in direct.CASES, SERVERS[act]
            are_apart = is_direct and servers > 1 and os.getuid() == 0
            place = Place(folder, servers, is_direct, are_apart=are_apart)
            case.note = act(place) or ""
        finally:
            if place:
                place.close()
    if case.failed:
        for log in [*Path(folder).rglob("sshd.log"), *Path(folder).rglob("daemon.log")]:
            for line in log.read_text(errors="replace").splitlines()[-12:]:
                print(f"        | {log.name}: {line[:160]}")
    shutil.rmtree(folder, ignore_errors=True)


def main():
    if not (BIN / "penstock").exists():
        sys.exit(f"no penstock in {BIN}: run `make build` first")
    build_load()
    wanted, words = part_of(list(SERVERS), sys.argv[1:])
    wanted = chosen(wanted, words, lambda act: act.__name__)
    count = Tally("ssh")
    count.plan(len(wanted))
    for act in wanted:
        perform(count, act)
    return count.end()


sys.exit(main())

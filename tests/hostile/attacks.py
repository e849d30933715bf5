#!/usr/bin/env python3
"""Attacks on a daemon and its workers: by strangers, by clients with the key, by code in a worker.

    tests/hostile/run.sh [--part N/OF] [PART OF A NAME...]

With --part 1/2 and --part 2/2, two parallel runs share the attacks, most of which wait more than
they work. Prints one line per attack, PASS or FAIL. After each attack the daemon must serve a
client correctly. After all of them it must hold no more resources than at its start, and leave
nothing behind. The last line counts the attacks.
"""

import contextlib
import os
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import builds
import clients
import confinement
import daemons
import escapes
import fairness
import greed
import isolation
import outgoing
import peers
import quotas
import rings
import sessions
import strangers
import tally
import users
from node import BIN, Node, wait_for
from wire import Client

ATTACKS = [
    attack
    for kind in (
        strangers,
        clients,
        greed,
        quotas,
        fairness,
        peers,
        sessions,
        rings,
        isolation,
        confinement,
        escapes,
        users,
        builds,
        outgoing,
        daemons,
    )
    for attack in kind.ATTACKS
]
MEBI = 1 << 20


def main():
    if not (BIN / "penstock").exists():
        sys.exit(f"no penstock in {BIN}: run `make build` first")
    words, (part, of) = sys.argv[1:], (1, 1)
    if words[:1] == ["--part"]:
        part, of = map(int, words[1].split("/"))
        words = words[2:]
    chosen = [
        attack for attack in ATTACKS if not words or any(word in attack.__name__ for word in words)
    ][part - 1 :: of]
    counts = {"PASS": 0, "FAIL": 0, "skip": 0}
    node = Node()

    def tell(verdict, name, started, note=""):
        counts[verdict] += 1
        print(
            f"{verdict} {'hostile/' + name:<40} {time.monotonic() - started:6.1f} s  {note}",
            flush=True,
        )

    def attack(name, act):
        started = time.monotonic()
        try:
            note = act()
            tell("PASS", name, started, note or "")
        except Exception as failure:
            where = traceback.extract_tb(failure.__traceback__)[-1]
            tell(
                "FAIL",
                name,
                started,
                f"{type(failure).__name__}: {failure} ({os.path.basename(where.filename)}:{where.lineno})",
            )

    def after():
        node.must_live()
        Client(node).works().close()

    if "intel" not in confinement.DRIVERS:
        why = "Intel's runtime for CPUs is not installed; tools/setup.sh installs it"
        tell("skip", "attacks on Intel's runtime", time.monotonic(), f"SKIPPED: {why}")
    if not users.ATTACKS:
        why = "only a daemon of root has workers with users of their own"
        tell("skip", "attacks on workers with users", time.monotonic(), f"SKIPPED: {why}")
    try:
        node.settle()
        Client(node).works().close()
        node.settle()
        start = {"fds": node.fds(), "threads": node.threads(), "rss": node.rss()}

        for one in chosen:

            def act(one=one):
                note = one(node)
                after()
                return note

            attack(one.__name__.replace("_", " "), act)

        def rests():
            node.settle(30)
            # The thread that answered the last request may not have ended yet.
            with contextlib.suppress(AssertionError):
                wait_for(
                    lambda: node.threads() <= start["threads"] and node.fds() <= start["fds"], 3, ""
                )
            now = {"fds": node.fds(), "threads": node.threads(), "rss": node.rss()}
            assert now["fds"] <= start["fds"] and now["threads"] <= start["threads"], (
                f"{start} before, {now} now"
            )
            # The C library keeps some pages for threads that have ended: up to 8 arenas per core.
            kept = min(8 * (os.cpu_count() or 1), 320) * (16 << 10)
            assert now["rss"] <= start["rss"] + 8 * MEBI + kept, f"{start} before, {now} now"
            return f"RSS {start['rss'] // 1024} KiB before, {now['rss'] // 1024} KiB after; {now['fds']} descriptors, {now['threads']} threads"

        def leaves():
            left = node.stop()
            assert not left, left

        attack("the daemon is back at its start", rests)
        attack("the log is short and one event a line", lambda: strangers.log_is_short(node))
        attack("nothing is left", leaves)
        if counts["FAIL"]:
            print("".join(f"        | {line}\n" for line in node.said().splitlines()[-20:]), end="")
    finally:
        node.remove()
    return tally.tell(counts["PASS"], counts["FAIL"], counts["skip"])


sys.exit(main())

#!/usr/bin/env python3
"""Attacks on a daemon and its workers: by strangers, by clients with the key, by code in a worker.

    tests/hostile/run.sh [--part N/OF] [PART OF A NAME...]

With --part 1/2 and --part 2/2, two parallel runs share the attacks, most of which wait more than
they work. Without names, those of the lane TEST_LANE run. Prints one line per attack. After each
attack the daemon must serve a client correctly. After all of them it must hold no more resources
than at its start, and leave nothing behind. The last line counts the attacks.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import builds
import clients
import confinement
import daemons
import escapes
import fairness
import flight
import greed
import isolation
import outgoing
import peers
import quotas
import rings
import sayers
import sessions
import stayers
import strangers
import strays
import users
from node import BIN, Node
from patience import chosen, wait_for
from tally import Skipped, Tally, part_of
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
        flight,
        stayers,
        strays,
        sayers,
        users,
        builds,
        outgoing,
        daemons,
    )
    for attack in kind.ATTACKS
]
MEBI = 1 << 20


def title(attack):
    return attack.__name__.replace("_", " ")


def rests(node, start):
    """Checks that the daemon holds no more than at its start."""
    node.settle()
    # The thread that answered the last request may not have ended yet.
    wait_for(
        lambda: node.threads() <= start["threads"] and node.fds() <= start["fds"],
        lambda: f"{start} before, {node.fds()} descriptors and {node.threads()} threads now",
    )
    # The C library keeps some pages for threads that have ended: up to 8 arenas per core.
    kept, rss = min(8 * (os.cpu_count() or 1), 320) * (16 << 10), node.rss()
    assert rss <= start["rss"] + 8 * MEBI + kept, f"{start} before, {rss} bytes now"
    return f"RSS {start['rss'] // 1024} KiB before, {rss // 1024} KiB after"


def run(count, node, attacks):
    node.settle()
    Client(node).works().close()
    node.settle()
    start = {"fds": node.fds(), "threads": node.threads(), "rss": node.rss()}
    for attack in attacks:
        with count.case(f"hostile/{title(attack)}") as case:
            case.note = attack(node) or ""
            node.must_live()
            Client(node).works().close()
    with count.case("hostile/the daemon is back at its start") as case:
        case.note = rests(node, start)
    with count.case("hostile/the log is short and one event a line") as case:
        case.note = strangers.log_is_short(node)
    with count.case("hostile/nothing is left"):
        left = node.stop()
        assert not left, left


def main():
    if not (BIN / "penstock").exists():
        sys.exit(f"no penstock in {BIN}: run `make build` first")
    attacks, words = part_of(ATTACKS, sys.argv[1:])
    attacks = chosen(attacks, words, title)
    count, lacks = Tally("hostile"), []
    if "intel" not in confinement.DRIVERS:
        lacks.append("Intel's runtime for CPUs is not installed; tools/setup.sh installs it")
    if not users.ATTACKS:
        lacks.append("only a daemon of root has workers with users of their own")
    count.plan(len(attacks) + 3 + len(lacks))
    for why in lacks:
        with count.case("hostile/attacks that need more"):
            raise Skipped(why)
    node = Node()
    try:
        run(count, node, attacks)
        if count.failed:
            print("".join(f"        | {line}\n" for line in node.said().splitlines()[-20:]), end="")
    finally:
        node.remove()
    return count.end()


sys.exit(main())

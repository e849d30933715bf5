"""Compares two settings of the daemon: two daemons run at the same time, and `clbench` runs over
both in turn, so that varying load of the machine affects both."""

import json
import statistics
import subprocess
import sys
import time

import run

SETTLE_S = 30


def measure(folder, listen, ways, groups, rounds, quick, shared=()):
    """Returns the rows of `clbench` for each round of each way. `ways` has the variables of each
    daemon and of its programs, and `shared` those of both. Takes `rounds` rounds of the `groups`,
    or of all groups if there are none."""
    places = run.Places()
    pool = run.Pool(places, folder / "pool")
    pool.base.update(shared)
    environments, samples = {}, {way: [] for way in ways}
    try:
        for way, variables in ways.items():
            options = {"POCL_DEVICES": "pthread", **variables}
            address = pool.serve(listen.replace("WAY", way), **options)
            environments[way] = dict(pool.env(address), **options)
        for number in range(rounds):
            order = list(ways)
            for way in order[number % 2 :] + order[: number % 2]:
                # Workers that start in place of the last ones would take the cores of this round.
                for environment in environments.values():
                    settle(places, environment)
                samples[way].append(one_round(places, environments[way], groups, quick))
                print(f"round {number + 1} of {rounds}: {way}", file=sys.stderr)
    finally:
        pool.stop()
    return samples


def settle(places, env):
    """Waits until the daemon serves no client and starts no worker."""
    until_s = time.monotonic() + SETTLE_S
    while True:
        command = [str(places.penstock), "status", "--json"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        node = json.loads(done.stdout)["nodes"][0]["status"]
        if not node["sessions"] and not node["starting_workers"] and node["spare_workers"]:
            return
        if time.monotonic() > until_s:
            sys.exit(f"a daemon does not come to rest within {SETTLE_S} s: {node}")
        time.sleep(0.05)


def one_round(places, env, groups, quick):
    rows = {}
    for group in groups or [None]:
        command = [places.clbench, *(["--quick"] if quick else [])]
        command += ["--only", group] if group else []
        rows |= run.rows_of(run.run_json(command, env))
    return rows


def compare(row, samples, plain, other):
    """Returns the share of the speed of `plain` that is left with `other`, by the medians. In rows
    of times a share of 0.9 is a time that is longer by a tenth."""
    medians = {
        way: statistics.median(rows[row][1] for rows in rounds) for way, rounds in samples.items()
    }
    unit = samples[plain][0][row][0]
    share = medians[other] / medians[plain] if medians[plain] else 1.0
    if not unit.endswith("/s"):
        share = 1 / share if share else 1.0
    return {"row": row, "unit": unit, **medians, "share": share}

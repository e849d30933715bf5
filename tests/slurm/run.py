#!/usr/bin/env python3
"""Runs jobs of Slurm on a cluster of the test: a head and three nodes in namespaces of this host.

    tests/slurm/run.py [--required] [PART OF A NAME...]

Prints one line per case; the last line counts them. Needs root and Debian's slurmctld, slurmd,
slurm-client, munge and iproute2 (tools/setup.sh slurm), and starts no service. Without them the
cases are skipped, or fail with --required.
"""

import shutil
import sys
import tempfile

from cluster import BIN, Cluster, missing

from cases import CASES
from node import build_load
from patience import PATIENCE_S, chosen
from tally import Skipped, Tally

# A case waits for several jobs, and Slurm looks for what is late twice a minute.
LIMIT_S = 10 * PATIENCE_S


def perform(count, cluster, act):
    with count.case(f"slurm/{act.__name__.replace('_', ' ')}", LIMIT_S) as case:
        case.note = act(cluster) or ""
        cluster.must_be_left_alone()
    return case


def main():
    if not (BIN / "penstock").exists():
        sys.exit(f"no penstock in {BIN}: run `make build` first")
    words = [word for word in sys.argv[1:] if word != "--required"]
    wanted = chosen(CASES, words, lambda act: act.__name__)
    count = Tally("slurm")
    count.plan(len(wanted))
    if lacks := missing():
        for act in wanted:
            with count.case(f"slurm/{act.__name__.replace('_', ' ')}"):
                assert "--required" not in sys.argv, lacks
                raise Skipped(lacks)
        return count.end()
    build_load()
    # Paths of sockets are short.
    folder, cluster = tempfile.mkdtemp(prefix="ps.", dir="/tmp"), None
    try:
        cluster = Cluster(folder)
        for act in wanted:
            if perform(count, cluster, act).failed:
                # What one case leaves must not fail the others.
                cluster.close()
                shutil.rmtree(folder, ignore_errors=True)
                folder = tempfile.mkdtemp(prefix="ps.", dir="/tmp")
                cluster = Cluster(folder)
    finally:
        if cluster:
            cluster.close()
        shutil.rmtree(folder, ignore_errors=True)
    return count.end()


sys.exit(main())

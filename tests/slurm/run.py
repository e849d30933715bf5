#!/usr/bin/env python3
"""Runs jobs of Slurm on a cluster of the test: a head and three nodes in namespaces of this host.

    tests/slurm/run.py [--required] [--cgroups] [PART OF A NAME...]

With --cgroups, Slurm uses control groups, as most clusters do, which this host must have in
version 1. Prints one line per case; the last line counts them. Needs root and Debian's slurmctld,
slurmd, slurm-client, munge and iproute2 (tools/setup.sh slurm), and starts no service. Without them
the cases are skipped, or fail with --required.
"""

import sys
import tempfile
from pathlib import Path

from cluster import BIN, Cluster, has_cgroups, missing, sweep

from cases import CASES
from node import build_load
from patience import PATIENCE_S, chosen
from tally import Skipped, Tally

# A case waits for several jobs, and Slurm looks for what is late twice a minute.
LIMIT_S = 10 * PATIENCE_S
# Where the folders of clusters are.
PLACE, PREFIX = Path("/var/tmp"), "ps."


def perform(count, cluster, cgroups, act, name):
    """Performs a case. Returns the cluster, which a failed case ends: what it leaves must not fail
    the others."""
    with count.case(name, LIMIT_S) as case:
        # Paths of sockets are short, and each node has a /tmp of its own.
        cluster = cluster or Cluster(tempfile.mkdtemp(prefix=PREFIX, dir=PLACE), cgroups)
        case.note = act(cluster) or ""
        cluster.must_be_left_alone()
    return end(cluster) if case.failed else cluster


def main():
    if not (BIN / "penstock").exists():
        sys.exit(f"no penstock in {BIN}: run `make build` first")
    options = [word for word in sys.argv[1:] if word.startswith("--")]
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    cgroups = "--cgroups" in options
    wanted = chosen(CASES, words, lambda act: act.__name__)
    prefix = "slurm/cgroups/" if cgroups else "slurm/"
    names = {act: prefix + act.__name__.replace("_", " ") for act in wanted}
    count = Tally("slurm")
    count.plan(len(wanted))
    lacks = missing()
    if not lacks and cgroups and not has_cgroups():
        lacks, options = "no control groups of version 1", []
    if lacks:
        for name in names.values():
            with count.case(name):
                assert "--required" not in options, lacks
                raise Skipped(lacks)
        return count.end()
    sweep(PLACE.glob(f"{PREFIX}*"))
    build_load()
    cluster = None
    for act, name in names.items():
        cluster = perform(count, cluster, cgroups, act, name)
    end(cluster)
    return count.end()


def end(cluster):
    if cluster:
        cluster.close()


sys.exit(main())

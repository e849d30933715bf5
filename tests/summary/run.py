#!/usr/bin/env python3
"""Summaries of runs: they count exactly what a program did, and never change how it ends.

    tests/summary/run.py [PART OF A NAME...]

Runs `work.c` on simulated devices. Prints one line per case.
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))
from patience import PATIENCE_S, chosen, lane
from tally import Tally

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
BIN = Path(os.environ.get("PENSTOCK_BIN", TARGET / "release")).resolve()
PENSTOCK = BIN / "penstock"
# The status of the program after its work.
WORKED = 5

# Time of launches with a summary, as a multiple of their time without one. Counting takes 2 ns of
# 135, and medians of equal runs differ by up to 3 %.
COST_MAX = 1.1

# What `work` does: its count, and the bytes that moved. Of these, an unmap writes 256 bytes if the
# program and the device do not share their memory.
WORK = {
    "launches": (10, None),
    "writes": (3, 4096 + 2 * 128),
    "reads": (3, 3 * 64),
    "copies": (1, None),
    "fills": (1, None),
    "maps": (1, None),
    "library_calls": (0, None),
    "builds": (1, None),
    "transfers": (0, 0),
}


class Place:
    """A folder for daemons and their programs, without any configuration from the environment."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-summary."))
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PENSTOCK_", "SLURM_"))
        }
        self.env |= {
            "HOME": str(self.folder),
            "XDG_RUNTIME_DIR": str(self.folder),
            "PENSTOCK_LIB": str(BIN / "libpenstock_opencl.so"),
            "PENSTOCK_KEY": str(self.folder / "key"),
        }
        self.env.pop("XDG_CONFIG_HOME", None)
        self.program = self.folder / "work"
        self.daemons = []
        self.file = self.folder / "summary.json"
        command = [PENSTOCK, "key", "--create"]
        subprocess.run(command, env=self.env, check=True, stdout=subprocess.DEVNULL)
        flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror"]
        compile = ["cc", *flags, f"-I{ROOT}/include", HERE / "work.c", "-o", self.program]
        subprocess.run([*compile, "-lOpenCL"], check=True)

    def serve(self, listen):
        """Starts a daemon with a simulated device. Returns it and its address."""
        daemon = subprocess.Popen(
            [PENSTOCK, "serve", "--platform", "null", "--listen", listen],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.daemons.append(daemon)
        return daemon, daemon.stdout.readline().strip().removeprefix("listening on ")

    def node(self):
        return self.serve(f"unix:{self.folder}/node{len(self.daemons)}.sock")[1]

    def start(self, nodes, mode, summary, stderr=subprocess.PIPE, **variables):
        words = ["--no-local", "--nodes", nodes, *summary]
        return subprocess.Popen(
            [PENSTOCK, "run", *words, "--", self.program, mode],
            env=self.env | variables,
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def run(self, nodes, mode, *summary, **variables):
        """Runs the program. Returns its exit status and its standard error."""
        program = self.start(nodes, mode, summary, **variables)
        out, err = program.communicate(timeout=PATIENCE_S)
        assert "failed" not in out, out
        self.out = out
        return program.returncode, err

    def summaries(self):
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def close(self):
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()
            daemon.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def counted(figures):
    commands = figures["commands"].items()
    return {name: (amount["count"], amount.get("bytes")) for name, amount in commands}


def assert_counts(summary, expected):
    assert counted(summary) == expected, summary
    assert summary["program"] == "work" and summary["interface"] == "OpenCL", summary
    assert summary["seconds"] > 0 and 1 <= len(summary["sentences"]) <= 3, summary


def the_counts_are_exact_in_shared_memory(place):
    status, err = place.run(place.node(), "work", "--summary=summary.json")
    assert (status, err) == (WORKED, ""), f"{status}: {err}"
    [summary] = place.summaries()
    assert_counts(summary, WORK)
    [node] = summary["nodes"]
    assert counted(node) == WORK and not node["lost"], node
    assert f"(unix:{place.folder}/node0.sock)" in node["name"], node
    waits = summary["waits"]
    # Nothing else in the process has the time to wait.
    assert (waits["build"]["count"], waits["open"]["count"]) == (1, 1), waits
    assert summary["waiting_threads"] == 1, summary


def the_counts_are_exact_over_a_network(place):
    _, address = place.serve("tcp:127.0.0.1:0")
    status, err = place.run(address, "work", "--summary=summary.json")
    assert (status, err) == (WORKED, ""), f"{status}: {err}"
    [summary] = place.summaries()
    count, moved = WORK["writes"]
    assert_counts(summary, WORK | {"writes": (count + 1, moved + 256)})
    # Without shared memory the three reads and the map wait, unless an answer has already come.
    assert 1 <= summary["waits"]["read"]["count"] <= 4, summary
    assert 1 <= summary["waits"]["finish"]["count"] <= 2, summary


def a_transfer_counts_where_it_begins(place):
    nodes = f"{place.node()},{place.node()}"
    for peers in ("on", "off"):
        place.file.unlink(missing_ok=True)
        status, err = place.run(nodes, "apart", "--summary=summary.json", PENSTOCK_PEERS=peers)
        assert (status, err) == (0, ""), f"{status}: {err}"
        [summary] = place.summaries()
        moved = [counted(node)["transfers"] for node in summary["nodes"]]
        assert moved == [(1, 4096), (0, 0)], summary
        assert counted(summary)["builds"] == (2, None), summary
        # The content goes through the program only if the nodes do not reach each other.
        through = 4096 if peers == "off" else 0
        assert counted(summary)["reads"] == (1, 4096 + through), summary
        assert counted(summary)["writes"] == (1 + (peers == "off"), 4096 + through), summary


def the_text_has_the_numbers_first(place):
    status, err = place.run(place.node(), "work", "--summary")
    lines = err.splitlines()
    assert status == WORKED, f"{status}: {err}"
    assert lines[0].startswith("penstock: summary of process ") and "(work, OpenCL)" in lines[0], (
        err
    )
    rows = [line.strip() for line in lines]
    for row in ("10  launches", "3  writes, 4.35 kB", "3  reads, 192 B", "1  build"):
        assert row in rows, f"{row} is not in {err}"
    assert all(len(line) <= 80 or line.startswith("On node") for line in lines), err
    assert any("waited for the pool" in line for line in lines), err


def each_process_that_uses_the_pool_has_its_own(place):
    """One child works before its parent does, and one that is a copy of its parent only ends."""
    status, err = place.run(place.node(), "child", "--summary=summary.json")
    assert (status, err) == (WORKED, ""), f"{status}: {err}"
    child, parent = place.summaries()
    assert child["process"] != parent["process"]
    assert_counts(child, WORK)
    assert_counts(parent, WORK)


def without_a_pool_or_a_wish_there_is_none(place):
    address = place.node()
    assert place.run(address, "nothing", "--summary=summary.json") == (6, "")
    assert place.run(address, "nothing", "--summary") == (6, "")
    assert place.run(address, "work") == (WORKED, "")
    assert place.run(address, "work", PENSTOCK_SUMMARY="off") == (WORKED, "")
    assert not place.file.exists()
    # The variable works without the option, and the option comes before it.
    other = str(place.folder / "other")
    assert place.run(address, "work", PENSTOCK_SUMMARY=str(place.file)) == (WORKED, "")
    assert place.run(address, "work", f"--summary={other}", PENSTOCK_SUMMARY="1") == (WORKED, "")
    assert len(place.summaries()) == 1 and len(Path(other).read_text().splitlines()) == 1


def a_lost_node_does_not_keep_the_program(place):
    daemon, address = place.serve(f"unix:{place.folder}/node.sock")
    program = place.start(address, "lost", ["--summary=summary.json"])
    assert program.stdout.readline() == "ready\n"
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    _, err = program.communicate("\n", timeout=PATIENCE_S)
    assert program.returncode == 3 and "is lost" in err, f"{program.returncode}: {err}"
    [summary] = place.summaries()
    [node] = summary["nodes"]
    assert node["lost"] and counted(node)["launches"][0] >= 10, node


def what_cannot_be_written_changes_nothing(place):
    address = place.node()
    status, err = place.run(address, "work", "--summary=absent/summary")
    assert status == WORKED, f"{status}: {err}"
    line = f"penstock: the summary {place.folder}/absent/summary: No such file or directory"
    assert err.startswith(line) and len(err.splitlines()) == 1, err
    # Nobody reads this pipe, or standard error.
    os.mkfifo(place.file)
    status, err = place.run(address, "work", f"--summary={place.file}")
    assert status == WORKED and "No such device" in err, f"{status}: {err}"
    reader, writer = os.pipe()
    program = place.start(address, "work", ["--summary"], stderr=writer)
    os.close(writer)
    os.close(reader)
    assert program.communicate(timeout=PATIENCE_S)[0] == ""
    assert program.returncode == WORKED, program.returncode


@lane("perf")
def counting_costs_little(place):
    address, seconds = place.node(), {"off": [], "on": []}
    for _ in range(15):
        for name, summary in (("off", []), ("on", ["--summary=summary.json"])):
            assert place.run(address, "launches", *summary) == (0, "")
            seconds[name].append(float(place.out))
    off, on = (statistics.median(seconds[name]) for name in ("off", "on"))
    assert on < off * COST_MAX, seconds
    return f"{on / off:.3f} times as long"


CASES = [
    the_counts_are_exact_in_shared_memory,
    the_counts_are_exact_over_a_network,
    a_transfer_counts_where_it_begins,
    the_text_has_the_numbers_first,
    each_process_that_uses_the_pool_has_its_own,
    without_a_pool_or_a_wish_there_is_none,
    a_lost_node_does_not_keep_the_program,
    what_cannot_be_written_changes_nothing,
    counting_costs_little,
]


def main():
    if not PENSTOCK.exists():
        sys.exit(f"no penstock in {BIN}: run `make build` first")
    name_of = lambda case: case.__name__.replace("_", " ")
    cases, count = chosen(CASES, sys.argv[1:], name_of), Tally("summary")
    count.plan(len(cases))
    for case in cases:
        place = Place()
        with count.case(f"summary/{name_of(case)}") as told:
            told.note = case(place) or ""
        place.close()
    return count.end()


sys.exit(main())

#!/usr/bin/env python3
"""Measures the pool and the local OpenCL platform: the same programs, in turn, in one session.

Every round runs `clbench` on the local platform, on a node behind a Unix socket, and on a node
behind TCP, so that varying load of the machine affects all of them. The results are the medians of
the rounds and their ratios, beside the limits of the machine (`limits`). Writes benchmarks.json and
benchmarks.md into the output folder.

`--beside FOLDER` names another build of Penstock, for example of an earlier commit. Each round then
runs the same `clbench` on the pools of that build, too, and a table shows the cost of each row
relative to that build.
"""

import argparse
import contextlib
import json
import os
import platform as machine
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent

# The bars of the project: (row, kind of pool, bound, baseline). "most" and "least" bound the ratio.
BARS = {
    ("launch and finish, median", "unix"): ("most", 1.5),
    ("10,000 kernels in order", "unix"): ("least", 0.7),
    ("2,000 x (write 64 B + kernel), a pair", "unix"): ("most", 2.0),
    ("blocking write 4 B", "unix"): ("most", 1.5),
    ("blocking read 4 B", "unix"): ("most", 1.5),
    ("write, kernel, read back 64 B", "unix"): ("most", 1.5),
    ("write, kernel, read back 64 KiB", "unix"): ("most", 1.5),
    ("blocking write 16 MiB", "unix"): ("least", 0.5),
    ("blocking read 16 MiB", "unix"): ("least", 0.5),
    ("map, write, unmap 4 KiB", "unix"): ("most", 2.0),
    ("start-up: platforms, devices, first context", "unix"): ("most", 2.0),
    ("write 16 MiB to its end", "tcp"): ("of raw TCP", 0.8),
    ("blocking read 16 MiB", "tcp"): ("of raw TCP", 0.8),
}
# When a transfer needs no message: the conditions of the best rows.
TRANSFERS = """A transfer of a few bytes takes 0.2 µs if it is one copy into memory that client
and worker share. That needs all of the following:

* The node is this host, reached by a Unix socket, and its device works on the host's memory.
* The context has devices of one platform of one node.
* The queue is in order, and everything in it has ended.
* The program asks for no event with times.

In all other cases a transfer is a command: see the rows for TCP, those "with its times", and
"write, kernel, read back". Over TCP a blocking write of a few bytes is fast, too, because it
returns when the client has copied the bytes. The rows "to its end" are timed until the device has
the bytes. After a rest both sides have gone to sleep, and a call that needs the worker also takes
one wake-up of a core.
"""
# Suffix of a kind of pool whose nodes and client are of the other build (`--beside`).
OTHER = ", other build"
# The baseline: the best that a plain program gets, with one such message or with many.
RAW_TCP = {
    # A blocking write returns when the socket has the bytes, so it is no baseline.
    "write 16 MiB to its end": (
        "TCP loopback: stream",
        "TCP loopback: 16 MiB there, 1 B back",
        "TCP loopback, Reno: 16 MiB there, 1 B back",
    ),
    "blocking read 16 MiB": (
        "TCP loopback: stream",
        "TCP loopback: 1 B there, 16 MiB back",
        "TCP loopback, Reno: 1 B there, 16 MiB back",
    ),
}
# In these rows both sides sleep between calls. One more wake-up of a core than locally is allowed.
WAKES = {
    "launch and finish, median",
    "launch and finish after 2 ms of rest, median",
    "blocking write 4 B",
    "blocking read 4 B",
    "blocking write 4 B after 2 ms of rest",
    "blocking read 4 B after 2 ms of rest",
    "write, kernel, read back 64 B",
    "write, kernel, read back 64 KiB",
    "map, write, unmap 4 KiB",
}


def find(name, *folders):
    for folder in folders:
        if folder and (Path(folder) / name).exists():
            return (Path(folder) / name).resolve()
    sys.exit(
        f"penstock-bench: {name} not found in {', '.join(str(f) for f in folders if f)}; run `make build`"
    )


class Places:
    """Finds the programs, beside this one or in the build folder. `build` names another build of
    Penstock itself."""

    def __init__(self, build=None):
        target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))
        programs = [os.environ.get("PENSTOCK_PROGRAMS"), HERE, target / "programs"]
        self.clbench, self.limits, self.matmul = (
            find(n, *programs) for n in ("clbench", "limits", "matmul")
        )
        if build:
            names = ("penstock", "libpenstock_opencl.so")
            self.penstock, self.library = (find(name, build) for name in names)
            return
        given = os.environ.get("PENSTOCK")
        beside = [
            given and Path(given).parent,
            os.environ.get("PENSTOCK_BIN"),
            HERE.parent / "release",
            HERE.parent.parent / "bin",
            target / "release",
        ]
        self.penstock = Path(given) if given else find("penstock", *beside)
        library = os.environ.get("PENSTOCK_LIB")
        bin_folder = self.penstock.parent
        self.library = (
            Path(library)
            if library
            else find("libpenstock_opencl.so", bin_folder, bin_folder.parent / "lib/penstock")
        )


class Pool:
    """Daemons on this host, which end with the program."""

    def __init__(self, places, folder):
        self.places, self.folder, self.daemons = places, Path(folder), []
        self.key = self.folder / "key"
        (self.folder / "vendors").mkdir(parents=True)
        (self.folder / "vendors/penstock.icd").write_text(f"{places.library}\n")
        self.base = dict(os.environ, PENSTOCK_KEY=str(self.key))
        command = [places.penstock, "key", "--create"]
        subprocess.run(command, env=self.base, check=True, stdout=subprocess.DEVNULL)

    def serve(self, listen, core=None, **variables):
        command = [str(self.places.penstock), "serve", "--listen", listen]
        if core is not None:
            command = ["taskset", "-c", str(core)] + command
        log = open(self.folder / f"daemon-{len(self.daemons)}.log", "w")
        daemon = subprocess.Popen(
            command, env=dict(self.base, **variables), stdout=subprocess.PIPE, stderr=log, text=True
        )
        self.daemons.append(daemon)
        timer = threading.Timer(60, daemon.kill)
        timer.start()
        line = daemon.stdout.readline()
        timer.cancel()
        if not line.startswith("listening on "):
            sys.exit(
                f"penstock-bench: `penstock serve --listen {listen}` did not start:\n{Path(log.name).read_text()[-2000:]}"
            )
        return line.removeprefix("listening on ").strip()

    def env(self, *addresses):
        vendors = str(self.folder / "vendors")
        icd = {"OCL_ICD_VENDORS": vendors, "OPENCL_VENDOR_PATH": vendors}
        return self.base | icd | {"PENSTOCK_NODES": ",".join(addresses)}

    def stop(self):
        for daemon in self.daemons:
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()


def run_json(command, env, limit_s=300):
    done = subprocess.run(
        [str(part) for part in command], env=env, capture_output=True, text=True, timeout=limit_s
    )
    if done.returncode != 0:
        sys.exit(
            f"penstock-bench: {' '.join(str(p) for p in command)} ended with {done.returncode}\n{done.stdout[-500:]}{done.stderr[-2000:]}"
        )
    return json.loads(done.stdout)


def rows_of(result):
    return {row["name"]: (row["unit"], row["value"]) for row in result["rows"]}


def processes_below(pid):
    """Returns the process and all its children, with their memory and threads."""
    found, waiting = [], [pid]
    while waiting:
        at = waiting.pop()
        # A process that has just ended has no memory lines.
        with contextlib.suppress(OSError, ValueError, KeyError):
            status = dict(
                line.split(":", 1)
                for line in Path(f"/proc/{at}/status").read_text().splitlines()
                if ":" in line
            )
            threads, kib = int(status["Threads"]), int(status["VmRSS"].split()[0])
            name = status["Name"].strip()
            found.append({"pid": at, "name": name, "threads": threads, "bytes": 1024 * kib})
            for task in Path(f"/proc/{at}/task").iterdir():
                waiting += [int(child) for child in (task / "children").read_text().split()]
    return found


def footprint(places, pool, address):
    """Returns memory and threads of the idle daemon, and of the worker while one client
    computes."""
    daemon = pool.daemons[0].pid
    at_rest = processes_below(daemon)
    known = {process["pid"]: process for process in at_rest}
    client = subprocess.Popen(
        [places.clbench, "--only", "launch"], env=pool.env(address), stdout=subprocess.DEVNULL
    )
    best, end = [], time.monotonic() + 20
    while client.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
        now = processes_below(daemon)
        if sum(p["bytes"] for p in now) >= sum(p["bytes"] for p in best):
            best = now
    client.wait()

    def grown(process):
        return process["bytes"] - known.get(process["pid"], {"bytes": 0})["bytes"]

    worker = max(best[1:], key=grown, default=None)
    return {"daemon": at_rest[0] if at_rest else None, "at_rest": at_rest, "worker": worker}


def pinned_product(places, pool, quick):
    """Runs the matrix product on two nodes of one core each, and locally on each of the two devices
    alone."""
    size = ["--n", "1024", "--slice", "128"] if quick else ["--n", "2048", "--slice", "256"]
    one = {"POCL_MAX_PTHREAD_COUNT": "1"}
    # A container may have any two cores of the machine.
    cores = sorted(os.sched_getaffinity(0))[:2]
    first = pool.serve(f"unix:{pool.folder}/pinned.sock", core=cores[0], **one)
    second = pool.serve("tcp:127.0.0.1:0", core=cores[1], **one)
    env, alone, together, pooled = dict(os.environ, **one), [], [], []
    for _ in range(1 if quick else 3):
        commands = [
            ["taskset", "-c", str(core), str(places.matmul), *size, "--json", "--no-check"]
            for core in cores
        ]
        alone.append([run_json(command, env)["gflops"] for command in commands])
        # Both at once, because two busy cores of one machine share its memory and its clock.
        running = [
            subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
            for command in commands
        ]
        together.append([json.loads(process.communicate()[0])["gflops"] for process in running])
        pooled.append(run_json([places.matmul, *size, "--json"], pool.env(first, second)))
    pooled.sort(key=lambda result: result["gflops"])
    result = pooled[len(pooled) // 2]
    alone = [statistics.median(column) for column in zip(*alone)]
    together = [statistics.median(column) for column in zip(*together)]
    return {
        "local_alone": alone,
        "local_together": together,
        "pool": result["gflops"],
        "of_sum_alone": result["gflops"] / sum(alone),
        "of_sum_together": result["gflops"] / sum(together),
        **{key: result[key] for key in ("devices", "n", "slice")},
    }


def start_nodes(pool, suffix=""):
    """Starts a node behind each kind of address. Returns the environment of a program on each of
    them, and on both."""
    addresses = {
        "unix": pool.serve(f"unix:{pool.folder}/node.sock", POCL_DEVICES="pthread"),
        "tcp": pool.serve("tcp:127.0.0.1:0", POCL_DEVICES="pthread"),
    }
    kinds = {kind + suffix: pool.env(address) for kind, address in addresses.items()}
    return addresses, kinds, {"two nodes" + suffix: pool.env(*addresses.values())}


def measure(places, pool, other, arguments):
    kinds = {"local": dict(os.environ, POCL_DEVICES="pthread")}
    addresses, single, two = start_nodes(pool)
    kinds.update(single)
    two["two local devices"] = dict(os.environ, POCL_DEVICES="pthread pthread")
    if other:
        _, single, two_there = start_nodes(other, OTHER)
        kinds.update(single)
        two.update(two_there)
    options = ["--quick"] if arguments.quick else []
    results, limits = {kind: [] for kind in [*kinds, *two]}, []
    for number in range(arguments.rounds):
        order = list(kinds)
        for kind in order[number % len(order) :] + order[: number % len(order)]:
            say(f"round {number + 1} of {arguments.rounds}: {kind}")
            results[kind].append(run_json([places.clbench, *options], kinds[kind]))
        # In every round, because the rates of sockets vary with the machine's load, as the pool's
        # do.
        say(f"round {number + 1} of {arguments.rounds}: limits of the machine")
        limits.append(rows_of(run_json([places.limits], dict(os.environ))))
        say(f"round {number + 1} of {arguments.rounds}: between two devices")
        for kind, env in two.items():
            results[kind].append(run_json([places.clbench, "--only", "migrate", *options], env))
    say("memory and threads")
    memory = footprint(places, pool, addresses["unix"])
    say("matrix product on two nodes")
    product = (
        pinned_product(places, pool, arguments.quick) if len(os.sched_getaffinity(0)) >= 2 else None
    )
    return summarise(results, limits, memory, product, arguments)


def summarise(results, limits, memory, product, arguments):
    medians = medians_of(results)
    limit_rows = {
        name: (unit, statistics.median(table[name][1] for table in limits))
        for name, (unit, _) in limits[0].items()
    }
    bars = [judged(*bar, medians, limit_rows) for bar in BARS.items() if is_known(*bar[0], medians)]
    if product:
        ratio = product["of_sum_together"]
        text = ">= 0.9 of the sum of the local rates"
        bars.append(one_bar("matrix product on two nodes", "unix + tcp", ratio, text, ratio >= 0.9))
    first = results["local"][0]
    return {
        "machine": {
            "cpu": cpu_name(),
            "cores": os.cpu_count(),
            "system": f"Linux {machine.release().partition('-')[0]}",
            "platform": first["version"],
            "device": first["device"],
        },
        "rounds": arguments.rounds,
        "quick": arguments.quick,
        "date": time.strftime("%Y-%m-%d"),
        "rows": medians,
        "limits": {
            name: {"unit": unit, "value": value} for name, (unit, value) in limit_rows.items()
        },
        "memory": memory,
        "product": product,
        "bars": bars,
        "beside": beside_other_build(medians),
    }


def medians_of(results):
    medians = {}
    for kind, runs in results.items():
        tables = [rows_of(run) for run in runs]
        for name in tables[0]:
            values = [table[name][1] for table in tables if name in table]
            of = {"median": statistics.median(values), "least": min(values), "most": max(values)}
            medians.setdefault(name, {"unit": tables[0][name][0]})[kind] = of | {"rounds": values}
    return medians


def is_known(name, kind, medians):
    return {kind, "local"} <= medians.get(name, {}).keys()


def judged(place, bound, medians, limit_rows):
    """Returns how a row keeps its bar."""
    (name, kind), (how, bar) = place, bound
    here, there = medians[name]["local"]["median"], medians[name][kind]["median"]
    if how == "most":
        # "where both sides sleep between calls, one more wake-up of a core than locally is allowed
        # and stated"
        ratio, wake_s = there / here, limit_rows.get("wake a sleeping core", ("s", 0))[1]
        less_wake = max(0.0, there - wake_s) / here if name in WAKES and ratio > bar else None
        is_met = (ratio if less_wake is None else less_wake) <= bar
        return one_bar(name, kind, ratio, f"<= {bar}", is_met, less_wake)
    if how == "least":
        return one_bar(name, kind, there / here, f">= {bar}", there / here >= bar)
    limit = max(limit_rows[raw][1] for raw in RAW_TCP[name] if raw in limit_rows)
    return one_bar(name, kind, there / limit, f">= {bar} {how}", there / limit >= bar)


def one_bar(row, pool, ratio, bar, met, less=None):
    return dict(row=row, pool=pool, ratio=ratio, less_one_wake_up=less, bar=bar, met=met)


def beside_other_build(rows):
    """Returns the cost of each row relative to the other build: the median over the rounds, and the
    value of the best rounds.

    A cost is a time, or the inverse of a rate. Rows without a figure of both builds are left
    out."""
    found = []
    for name, row in rows.items():
        is_rate = row["unit"].endswith("/s")
        for kind in ("unix", "tcp", "two nodes"):
            if kind + OTHER not in row or kind not in row or row["unit"] not in ("s", "/s", "B/s"):
                continue
            now, then = (
                [1 / value if is_rate else value for value in row[which]["rounds"]]
                for which in (kind, kind + OTHER)
            )
            found.append(
                {
                    "row": name,
                    "pool": kind,
                    "unit": row["unit"],
                    "other": row[kind + OTHER]["median"],
                    "this": row[kind]["median"],
                    "cost": statistics.median(a / b for a, b in zip(now, then)),
                    "cost_of_bests": min(now) / min(then),
                }
            )
    return found


def cpu_name():
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return machine.machine()


def figure(unit, value):
    if unit == "s":
        return f"{value * 1e6:.1f} µs" if value < 1e-3 else f"{value * 1e3:.2f} ms"
    if unit == "B/s":
        return f"{value / 1e9:.2f} GB/s"
    if unit == "/s":
        return f"{value:,.0f} /s"
    if unit == "B":
        return f"{value / 1e6:.1f} MB"
    return f"{value:g}"


def markdown(report):
    parts = [opening, measures, migration, machine_limits, processes, matrix_product, bars_table]
    lines = [line for part in [*parts, other_build] for line in part(report)]
    return "\n".join(lines) + "\n"


def opening(report):
    m = report["machine"]
    yield "# Benchmarks\n"
    yield (
        f"Measured on {report['date']} with `make bench`: {m['cores']} cores ({m['cpu']}), "
        f"{m['system']}. Local: {m['platform'].strip()}, device {m['device']}. Medians of "
        f"{report['rounds']} round(s), local and pool in turn. "
        "The ratio is pool to local: for times less is better, for rates more.\n"
    )
    yield TRANSFERS


def measures(report):
    yield "| measure | local | pool, Unix socket | ratio | pool, TCP loopback | ratio |"
    yield "|---|---|---|---|---|---|"
    for name, row in report["rows"].items():
        if "local" not in row:
            continue
        local = row["local"]["median"]
        cells = [name, figure(row["unit"], local)]
        for kind in ("unix", "tcp"):
            there = row[kind]["median"] if kind in row else None
            known = there is not None
            cells += [figure(row["unit"], there), f"{there / local:.2f}"] if known else ["–", "–"]
        yield "| " + " | ".join(cells) + " |"


def migration(report):
    moves = {name: row for name, row in report["rows"].items() if "two nodes" in row}
    if any("move" in name for name in moves):
        yield "\n| migration | two local devices | two nodes |\n|---|---|---|"
    for name, row in moves.items():
        if name.startswith("move"):
            local = row.get("two local devices")
            here = figure("s", local["median"]) if local else "–"
            yield f"| {name} | {here} | {figure('s', row['two nodes']['median'])} |"


def machine_limits(report):
    yield "\n| limit of this machine | |\n|---|---|"
    for name, row in report["limits"].items():
        yield f"| {name} | {figure(row['unit'], row['value'])} |"


def processes(report):
    yield "\n| process | memory | threads |\n|---|---|---|"
    memory, threads = (report["rows"][f"{what} of the client"] for what in ("memory", "threads"))
    there, here = (figure("B", memory[kind]["median"]) for kind in ("unix", "local"))
    counts = (threads[kind]["median"] for kind in ("unix", "local"))
    yield (
        f"| client (clbench, start) | {there} (local: {here}) | {{:g}} (local: {{:g}}) |".format(
            *counts
        )
    )
    labels = {"daemon": "daemon at rest", "worker": "worker with one client"}
    for name, label in labels.items():
        process = report["memory"][name]
        if process:
            yield f"| {label} | {figure('B', process['bytes'])} | {process['threads']} |"


def matrix_product(report):
    p = report["product"]
    if p:
        alone, together = (
            "{:.2f} and {:.2f}".format(*p[f"local_{how}"]) for how in ("alone", "together")
        )
        yield (
            f"\nMatrix product, n = {p['n']}, slice = {p['slice']}, two nodes of one pinned core "
            f"each: {p['pool']:.2f} GFLOP/s. The two devices locally: {alone} alone, {together} at "
            f"the same time. That is {100 * p['of_sum_together']:.0f} % of the sum at the same "
            f"time, and {100 * p['of_sum_alone']:.0f} % of the sum alone."
        )


def bars_table(report):
    wake = report["limits"].get("wake a sleeping core", {"value": 0})["value"]
    yield (
        "\nThe bars: if both sides sleep between calls, one more wake-up of a core than locally "
        f"({figure('s', wake)} here) is allowed. The table names it where it was needed.\n"
    )
    yield "| measure | pool | ratio | bar | |\n|---|---|---|---|---|"
    for bar in report["bars"]:
        less = bar["less_one_wake_up"]
        bare = "" if less is None else f" ({less:.2f} less one wake-up)"
        met = "met" if bar["met"] else "**missed**"
        yield f"| {bar['row']} | {bar['pool']} | {bar['ratio']:.2f}{bare} | {bar['bar']} | {met} |"


def other_build(report):
    if not report["beside"]:
        return
    yield (
        "\nBeside the other build: the cost is the time now for each unit of time there, so less "
        f"is better. It is the median over {report['rounds']} pairs of rounds; the last column "
        "compares the best rounds alone.\n"
    )
    yield "| measure | pool | other build | this build | cost | of the best rounds |"
    yield "|---|---|---|---|---|---|"
    for b in report["beside"]:
        builds = " | ".join(figure(b["unit"], b[which]) for which in ("other", "this"))
        costs = f"{b['cost']:.2f} | {b['cost_of_bests']:.2f}"
        yield f"| {b['row']} | {b['pool']} | {builds} | {costs} |"


def say(text):
    print(f"penstock-bench: {text}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(prog="penstock-bench", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--quick", action="store_true", help="one round with fewer samples: to see that all works"
    )
    parser.add_argument(
        "--rounds", type=int, help="how often each pool is measured (default 5; quick: 1)"
    )
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="FOLDER",
        help="the folder of another build's `penstock` and `libpenstock_opencl.so`: measure that build in turn with this one",
    )
    parser.add_argument("--output", type=Path, help="folder for benchmarks.json and benchmarks.md")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 5)
    places = Places()
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench."))
    pools = []
    try:
        pools.append(Pool(places, folder / "this"))
        other = None
        if arguments.beside:
            other = Pool(Places(arguments.beside), folder / "other")
            pools.append(other)
        report = measure(places, pools[0], other, arguments)
    finally:
        for pool in pools:
            pool.stop()
        shutil.rmtree(folder, ignore_errors=True)
    text = markdown(report)
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "benchmarks.json").write_text(json.dumps(report, indent=1) + "\n")
        (arguments.output / "benchmarks.md").write_text(text)
    print(json.dumps(report, indent=1) if arguments.json else text)
    missed = sum(not bar["met"] for bar in report["bars"])
    print(
        f"{len(report['bars']) - missed} of {len(report['bars'])} bars met",
        file=sys.stderr if arguments.json else sys.stdout,
    )


if __name__ == "__main__":
    main()

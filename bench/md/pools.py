"""The ways in which a program reaches the devices of the study: the local driver, pools of one to
four nodes on this host, and guests."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

import guests as md_guests

TOP = Path(__file__).resolve().parent.parent.parent
START_S = 60
# Makes devices of one core, with PoCL and with Intel's runtime.
ONE_CORE = {"POCL_MAX_PTHREAD_COUNT": "1", "DPCPP_CPU_NUM_CUS": "1"}


@dataclass
class Way:
    """One way to the devices."""

    name: str
    # A way to compare with: the same devices without Penstock.
    native: str
    # Environment of each rank; with several nodes each rank uses its own one.
    ranks: list = field(default_factory=list)
    # Words in front of each rank's command.
    before: list = field(default_factory=list)
    # Words of `penstock vm run` in front of the rank's command.
    guest: list = field(default_factory=list)
    # Whether the guest's instructions are translated, so that its times tell nothing of the pool.
    emulated: bool = False
    # Whether LAMMPS can build its neighbour lists on the device: with PoCL it crashes.
    builds_lists: bool = False
    # Why the way cannot be measured here.
    skipped: str = ""


class NotStarted(Exception):
    """A daemon that does not start. Its text says why."""


class Pools:
    """Starts daemons of this build, and ends them."""

    def __init__(self, driver):
        self.driver = driver
        self.folder = Path(tempfile.mkdtemp(prefix="psmd."))
        self.daemons = []
        self.spaces = []
        binary = Path(os.environ.get("PENSTOCK_BIN", TOP / "target/release"))
        self.penstock = binary / "penstock"
        library = binary / "libpenstock_opencl.so"
        for needed in (self.penstock, library):
            if not needed.exists():
                sys.exit(f"study-md: {needed} is missing; run `make build`")
        (self.folder / "pool").mkdir()
        (self.folder / "pool/penstock.icd").write_text(f"{library}\n")
        (self.folder / "driver").mkdir()
        shutil.copy(driver, self.folder / "driver")
        # Plain also between namespaces, as in the figures of the study.
        self.base = dict(
            os.environ,
            POCL_DEVICES="pthread",
            PENSTOCK_KEY=str(self.folder / "key"),
            PENSTOCK_ENCRYPTION="never",
        )
        subprocess.run(
            [self.penstock, "key", "--create"], env=self.base, check=True, stdout=subprocess.DEVNULL
        )

    def vendors(self, kind):
        """Returns the variables that show a program only the drivers of this folder."""
        folder = str(self.folder / kind)
        return {"OCL_ICD_VENDORS": folder, "OPENCL_VENDOR_PATH": folder}

    def serve(self, listen, before=(), **variables):
        log = self.folder / f"daemon-{len(self.daemons)}.log"
        with open(log, "w") as errors:
            daemon = subprocess.Popen(
                [*before, str(self.penstock), "serve", "--listen", listen],
                env=self.base | self.vendors("driver") | variables,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.daemons.append(daemon)
        timer = threading.Timer(START_S, daemon.kill)
        timer.start()
        line = daemon.stdout.readline()
        timer.cancel()
        if not line.startswith("listening on "):
            raise NotStarted(f"the daemon for {listen} did not start: {log.read_text()[-500:]}")
        return line.removeprefix("listening on ").strip()

    def through(self, address):
        return self.base | self.vendors("pool") | {"PENSTOCK_NODES": address}

    def native(self, before=(), **variables):
        return Way("native", "", [self.base | self.vendors("driver") | variables], list(before))

    def one_node(self, kind):
        listen = f"unix:{self.folder}/n.sock" if kind == "unix" else "tcp:127.0.0.1:0"
        return Way(kind, "native", [self.through(self.serve(listen))])

    def floor(self, kind):
        """The local driver, with the bytes and the wake-ups that a device which another process
        serves costs at least."""
        library = self.folder / "floor.so"
        source = Path(__file__).with_name("floor.c")
        build = ["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl", "-lpthread"]
        subprocess.run(build, check=True)
        way = self.native(FLOOR=kind, LD_PRELOAD=str(library))
        return dataclasses.replace(way, name=f"floor-{kind}", native="native")

    def guest(self, transport, program):
        """A guest that reaches the daemon of its host through this transport. `penstock vm run`
        starts the daemon and the guest for each run of the program."""
        way = Way(f"guest-{transport}", "native", [self.base | self.vendors("driver")])
        way.emulated, way.skipped = md_guests.probe(self.penstock, transport, way.ranks[0])
        plugins = None if way.skipped else md_guests.copy_plugins(program, self.folder / "openmpi")
        cores = len(self.cores())
        way.guest = md_guests.options(self.penstock, transport, way.emulated, cores, plugins)
        return way

    def cores(self):
        return sorted(os.sched_getaffinity(0))

    def nodes(self, count, rate=None):
        """Nodes of one core each, one rank on each. `rate` limits the link of each node, which is
        then in a network namespace."""
        name = f"nodes-{count}" + (f"-{rate}" if rate else "")
        way = Way(name, f"native-{count}")
        cores = self.cores()
        for node in range(count):
            before = ["taskset", "-c", str(cores[node % len(cores)])]
            listen = "tcp:127.0.0.1:0"
            if rate:
                why = self.make_space(node, rate)
                if why:
                    way.skipped = why
                    return way
                before = ["ip", "netns", "exec", self.spaces[-1], *before]
                listen = f"tcp:10.79.{node}.2:0"
            address = self.serve(listen, before, **ONE_CORE)
            way.ranks.append(self.through(address))
        return way

    def native_ranks(self, count):
        """As many ranks with a device of one core each, without Penstock."""
        one = self.base | self.vendors("driver") | ONE_CORE
        return Way(f"native-{count}", "", [one] * count)

    def make_space(self, node, rate):
        """Makes a namespace whose only link has this rate. Returns why it cannot."""
        if os.geteuid() != 0:
            return "network namespaces need root"
        if not shutil.which("ip") or not shutil.which("tc"):
            return "ip and tc are missing: install the Debian package iproute2"
        space, ends = f"psmd{node}", (f"psmd{node}h", f"psmd{node}n")
        net = f"10.79.{node}"
        shape = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
        commands = [
            ["ip", "netns", "add", space],
            ["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1], "netns", space],
            ["ip", "addr", "add", f"{net}.1/24", "dev", ends[0]],
            ["ip", "link", "set", ends[0], "up"],
            ["ip", "-n", space, "addr", "add", f"{net}.2/24", "dev", ends[1]],
            ["ip", "-n", space, "link", "set", ends[1], "up"],
            ["ip", "-n", space, "link", "set", "lo", "up"],
            ["tc", "qdisc", "add", "dev", ends[0], *shape],
            ["tc", "-n", space, "qdisc", "add", "dev", ends[1], *shape],
        ]
        self.spaces.append(space)
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                return f"`{' '.join(command)}` fails: {done.stderr.strip()}"
        return ""

    def stop(self):
        for daemon in self.daemons:
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
        for space in self.spaces:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

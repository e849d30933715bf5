"""A daemon whose processes are killed, and the clients that use it."""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

from patience import PATIENCE_S, wait_for
from processes import Roll, tree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BIN = Path(os.environ.get("PENSTOCK_BIN", TARGET / "release"))
LOAD = TARGET / "programs" / "fault-load"
# The bar of the project for errors after a kill. Each line shows the worst time; the lane `perf`
# judges it.
ERROR_WITHIN_S = 2.0
# The bar for kernels in a heap that loses a member.
ABORTED_WITHIN_S = 1.0


class Fault(AssertionError):
    """A failure that a case has found."""


def build_load():
    source = HERE / "load.c"
    LOAD.parent.mkdir(parents=True, exist_ok=True)
    if not LOAD.exists() or LOAD.stat().st_mtime < source.stat().st_mtime:
        options = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", f"-I{ROOT / 'include'}"]
        subprocess.run(["gcc", *options, "-o", LOAD, source, "-lOpenCL"], check=True)


def stacks_of(pid):
    """Returns the stacks of a hanging process's threads; empty without gdb."""
    if not shutil.which("gdb"):
        return ""
    command = ["gdb", "-batch", "-p", str(pid), "-ex", "thread apply all backtrace 14"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S).stdout
    return "".join(
        f"\n        | {line[:200]}"
        for line in said.splitlines()
        if line.startswith(("#", "Thread"))
    )


class Node:
    """A daemon in a folder of its own."""

    def __init__(self, folder, kind, number=0, listens=(), devices="pthread", options=()):
        self.folder, self.kind = Path(folder), kind
        self.key = self.folder / "key"
        self.env = dict(
            os.environ, PENSTOCK_KEY=str(self.key), POCL_DEVICES=devices, TMPDIR=str(self.folder)
        )
        if kind == "tls":
            keys = {"XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state"}
            self.env |= {name: str(self.folder / place) for name, place in keys.items()}
            self.env["PENSTOCK_ENCRYPTION"] = "always"
        if not self.key.exists():
            subprocess.run(
                [BIN / "penstock", "key", "--create"],
                env=self.env,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            (self.folder / "vendors").mkdir()
            (self.folder / "vendors/penstock.icd").write_text(f"{BIN / 'libpenstock_opencl.so'}\n")
        self.socket = f"node{number}.sock"
        listen = f"unix:{self.folder}/{self.socket}" if kind == "unix" else "tcp:127.0.0.1:0"
        self.log = open(self.folder / f"daemon{number}.log", "a")
        listens = [word for more in (listen, *listens) for word in ("--listen", more)]
        self.daemon = subprocess.Popen(
            [BIN / "penstock", "serve", *listens, *options],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        timer = threading.Timer(PATIENCE_S, self.daemon.kill)
        timer.start()
        line = self.daemon.stdout.readline()
        timer.cancel()
        if not line.startswith("listening on "):
            raise Fault(f"the daemon did not start: {Path(self.log.name).read_text()[-500:]}")
        self.address = line.removeprefix("listening on ").strip()
        self.roll = Roll()

    def client(self, mode, *more, nodes=None, **variables):
        vendors = str(self.folder / "vendors")
        addresses = ",".join(node.address for node in nodes or [self])
        env = dict(
            self.env, OCL_ICD_VENDORS=vendors, OPENCL_VENDOR_PATH=vendors, PENSTOCK_NODES=addresses
        ) | {"PENSTOCK_TIMEOUT_MS": "60000", **variables}
        return Client([LOAD, mode, *map(str, more)], env)

    def workers(self):
        found = tree(self.daemon.pid)
        self.roll.add(*found)
        return found

    def status(self):
        """Returns what the daemon says of itself."""
        command = [BIN / "penstock", "status", "--json", "--nodes", self.address]
        said = subprocess.run(command, env=self.env, capture_output=True, text=True, check=True)
        return json.loads(said.stdout)["nodes"][0]["status"]

    def must_serve(self):
        """Checks that a new client gets right results."""
        if self.daemon.poll() is not None:
            raise Fault(f"the daemon ended with {self.daemon.returncode}")
        self.client("check").must_be_right()

    def stop(self):
        self.workers()
        self.daemon.send_signal(signal.SIGTERM)
        try:
            self.daemon.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
            raise Fault("the daemon does not end on SIGTERM") from None
        self.nothing_left()

    def nothing_left(self):
        wait_for(lambda: not self.roll.left(), lambda: f"processes left: {self.roll.left()}")
        left = [path.name for path in self.folder.iterdir() if path.name == self.socket]
        if left and self.daemon.returncode != -signal.SIGKILL:
            raise Fault(f"sockets left: {left}")


class Client:
    """A process of load.c. Its output lines tell what it does."""

    def __init__(self, command, env):
        self.process = subprocess.Popen(
            [str(part) for part in command],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines, self.stamps = [], []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            self.stamps.append(time.monotonic())

    def wait_busy(self):
        wait_for(
            lambda: (
                any(line.startswith("busy") for line in self.lines)
                or self.process.poll() is not None
            ),
            "the client did not get to work",
        )
        if self.process.poll() is not None:
            raise Fault(f"the client ended early: {self.lines[-3:]}")

    def signal(self, name):
        """Sends the process a signal, as `Guest.signal` of tests/guests does."""
        self.process.send_signal(signal.Signals[f"SIG{name}"])

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def must_end(self, fault):
        """Waits until the client ends by itself, and reads its output."""
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Fault(f"{fault}: {self.lines[-3:]}") from None
        self.reader.join(PATIENCE_S)

    def must_be_right(self):
        """Checks that the client ends by itself, with right results."""
        self.must_end("a client hangs")
        if self.process.returncode != 0:
            raise Fault(f"a client ended with {self.process.returncode}: {self.lines[-3:]}")

    def must_get_error(self, since):
        """Checks that the client reports "error CODE" after the kill and ends normally. Returns the
        seconds until the error."""
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            stacks = stacks_of(self.process.pid)
            self.kill()
            raise Fault(f"a client hangs after the kill: {self.lines[-3:]}{stacks}") from None
        self.reader.join(PATIENCE_S)
        code = self.process.returncode
        if code < 0:
            raise Fault(f"a client was ended by signal {-code}: {self.lines[-3:]}")
        errors = [stamp for line, stamp in zip(self.lines, self.stamps) if line.startswith("error")]
        if not errors:
            raise Fault(f"a client noticed nothing and ended with {code}: {self.lines[-3:]}")
        if any("wrong" in line for line in self.lines):
            raise Fault(f"wrong results: {self.lines[-3:]}")
        return errors[0] - since

    def must_be_aborted(self, since):
        """Checks that a heap's kernel on the other device leaves after the kill, and that the
        client ends normally. Returns the seconds until then."""
        self.must_be_right()
        aborted = [
            stamp - since
            for line, stamp in zip(self.lines, self.stamps)
            if line.startswith("aborted")
        ]
        if len(aborted) != 1 or sum(line.startswith("lost") for line in self.lines) != 1:
            raise Fault(f"one device is lost and one aborted, but: {self.lines[-4:]}")
        return aborted[0]

#!/usr/bin/env python3
"""Programs in guests: `penstock vm run` gives the host's results over each transport, and leaves
nothing behind.

    tests/guests/run.py [--transport NAME]...

Boots one guest for each transport and runs clinfo, a CUDA program and the matrix product in it. If
root starts this, an ordinary user runs these guests, because they must not need root. The guests
are emulated if KVM does not work. Prints one line per case.
"""

import argparse
import difflib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from patience import CASE_S, PATIENCE_S, chosen, wait_for
from processes import Roll, tree
from tally import Skipped, Tally

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
BIN = Path(os.environ.get("PENSTOCK_BIN", TARGET / "release")).resolve()
PROGRAMS = Path(os.environ.get("PENSTOCK_PROGRAMS", TARGET / "programs")).resolve()
PENSTOCK = BIN / "penstock"
KERNEL = TARGET / "guest"
TOOLS = TARGET / "tools/bin"
REQUIRED = os.environ.get("PENSTOCK_TEST_REQUIRE", "").split(",")
# What `penstock vm run` says of each transport.
WAYS = {
    "vsock": "it uses vsock",
    "shm": "it uses memory that it shares with the host",
    "tcp": "it uses TCP over virtio-net",
}
TRANSPORTS = list(WAYS)


# The user `nobody` of most systems. It owns no files.
ORDINARY = 65534


class Place:
    """A scratch directory, with an environment that names no pool. The programs that `call` runs
    belong to `user`."""

    def __init__(self, user=None):
        # The paths of Unix sockets in it are short.
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-vm.", dir="/tmp"))
        self.prefix = []
        if user is not None:
            os.chown(self.folder, user, user)
            self.prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PENSTOCK_", "SLURM_"))
        }
        self.env |= {
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "XDG_RUNTIME_DIR": str(self.folder),
            "PATH": f"{TOOLS}:{os.environ['PATH']}",
        }

    def call(self, *arguments, **options):
        """Runs penstock and returns what became of it."""
        return subprocess.run(
            check=False,
            args=[*self.prefix, PENSTOCK, *map(str, arguments)],
            env=self.env,
            cwd=self.folder,
            timeout=CASE_S,
            capture_output=True,
            **{"text": True, "stdin": subprocess.DEVNULL} | options,
        )

    def guest(self, *arguments, transport="tcp", image=KERNEL, **options):
        return self.call("vm", "run", "--transport", transport, image, *arguments, **options)

    def left(self):
        """Returns the names of the folders of runs."""
        return [path.name for path in self.folder.glob("penstock/run-*")]

    def left_in_memory(self):
        """Returns the folders of runs of this user whose guests share memory with the host."""
        return set(Path(f"/dev/shm/penstock-{os.getuid()}").glob("run-*"))


def need(name, condition, why):
    """Skips the case if the host lacks something, or fails if a test must not lack it."""
    assert condition or name not in REQUIRED, f"{name} is required, and is missing: {why}"
    if not condition:
        raise Skipped(why)


def need_guests(transport="tcp"):
    need("guest", shutil.which("qemu-system-x86_64"), "no QEMU: tools/setup.sh guest")
    need("guest", (KERNEL / "boot").is_dir(), "no kernel for guests: tools/setup.sh guest")
    if transport != "tcp":
        helper = (TOOLS / "vhost-device-vsock").is_file() or shutil.which("vhost-device-vsock")
        is_there = helper or os.access("/dev/vhost-vsock", os.R_OK | os.W_OK)
        need("guest", is_there, "no vhost-device-vsock: tools/setup.sh guest")


def build_vector_add():
    """Builds the CUDA program, unless the stage `cuda` has done so."""
    compiler = next(ROOT.glob(".venv-cuda/lib/python3*/site-packages/nvidia/cu13/bin/nvcc"), None)
    need("cuda-toolkit", compiler, "no nvcc: tools/setup.sh cuda")
    # A folder of its own: the stage `cuda` may build at the same time.
    out = TARGET / "guests"
    done = subprocess.run(
        check=False,
        args=["make", "-C", ROOT / "examples/cuda", f"OUT={out}", out / "vectorAdd"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return out / "vectorAdd"


def programs():
    """Returns the commands of the programs, by name."""
    need("opencl", shutil.which("clinfo"), "no clinfo")
    return {
        "clinfo": ["clinfo"],
        "matmul": [PROGRAMS / "matmul", "--n", "256", "--slice", "128"],
        "vectorAdd": [build_vector_add(), "--small"],
    }


def script_of(commands):
    """Returns a shell's script that runs the programs, and says how each ended."""
    lines = [f'{" ".join(map(str, command))}; echo "@ $?"' for command in commands.values()]
    # An emulated guest may take longer than the usual patience of a client.
    return "; ".join(["export PENSTOCK_TIMEOUT_MS=60000", *lines])


def results_of(text, commands):
    """Splits the output of the script. Leaves out the times, and the name of the machine."""
    parts = re.split(r"^@ (\d+)$", text, flags=re.MULTILINE)
    outputs, statuses = parts[0:-1:2], parts[1::2]
    assert len(outputs) == len(commands), text
    times = re.compile(r"\d+\.\d+ *(ms|s|%|GFLOP/s)?| +\d+\.\d+%")
    # Only on the host all buffers lie in memory that the program sees.
    unified = re.compile(r"^ *Unified memory for Host and Device .*$", flags=re.MULTILINE)
    # A host may get or lose memory while it runs, and PoCL reports the present size.
    sized = "Global memory size|Max memory allocation|Max size for 1D images from buffer"
    sizes = re.compile(rf"^( *(?:{sized})) +[1-9].*$", flags=re.MULTILINE)

    def plain(output):
        known = sizes.sub(r"\1 #", unified.sub("", output))
        return re.sub(r" +", " ", times.sub("#", known)).strip()

    return {
        name: (plain(output), status)
        for name, output, status in zip(commands, outputs, statuses, strict=True)
    }


def same_results_without_root(_place, transport):
    """The three programs give the host's results in one guest of an ordinary user."""
    need_guests(transport)
    user = None
    if os.geteuid() == 0:
        need("guest", shutil.which("setpriv"), "no setpriv (Debian: util-linux)")
        user = ORDINARY
    place = Place(user)
    try:
        can_read = place.call("--version").returncode == 0
        need("guest", can_read, f"user {user} cannot run {PENSTOCK}: open its folders to others")
        same_results(place, transport)
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)


def same_results(place, transport):
    commands = programs()
    script = script_of(commands)
    files = [option for command in commands.values() for option in ("--file", which(command[0]))]
    done = place.guest(*files, "--", "/bin/sh", "-c", script, transport=transport)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
    assert WAYS[transport] in done.stderr, done.stderr
    expected = place.call("run", "--", "/bin/sh", "-c", script)
    assert expected.returncode == 0, expected.stderr
    found = results_of(done.stdout, commands)
    wanted = results_of(expected.stdout, commands)
    for name in commands:
        assert found[name] == wanted[name], differences(name, found[name], wanted[name])
        assert found[name][1] == "0", found[name]
    assert "product: right" in found["matmul"][0], found["matmul"]
    assert "Test passed" in found["vectorAdd"][0], found["vectorAdd"]
    assert "Penstock" in found["clinfo"][0], found["clinfo"]


def differences(name, found, wanted):
    """Returns the lines in which two results differ."""
    lines = difflib.unified_diff(
        *([*output.splitlines(), f"@ {status}"] for output, status in (wanted, found)),
        f"{name} on the host",
        f"{name} in the guest",
        n=0,
        lineterm="",
    )
    return "\n".join(lines)


def which(program):
    return shutil.which(str(program))


def input_output_and_status(place):
    """Bytes of any value pass, apart on the two outputs, and the status is the program's. The guest
    has a name and a loopback, also without a network card."""
    need_guests("vsock")
    data = bytes(range(256)) * 3000
    script = "cat; read name </proc/sys/kernel/hostname; read state </sys/class/net/lo/operstate; "
    script += 'echo "problem of $name, $state" >&2; exit 42'
    options = {"input": data, "stdin": None, "text": False, "transport": "vsock"}
    done = place.guest("--file", which("cat"), "--", "sh", "-c", script, **options)
    assert done.returncode == 42, f"{done.returncode}: {done.stderr}"
    assert done.stdout == data, f"{len(done.stdout)} bytes of {len(data)}"
    # The kernel knows of no loss of carrier of a loopback, so one that is up is "unknown".
    assert b"problem of guest, unknown\n" in done.stderr, done.stderr


def nodes_that_run_already(place):
    """The guest uses a daemon that is not its own, with the user's key."""
    need_guests()
    need("opencl", shutil.which("clinfo"), "no clinfo")
    place.call("key", "--create")
    daemon = subprocess.Popen(
        [PENSTOCK, "serve", "--listen", "tcp:127.0.0.1:0"],
        env=place.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        port = daemon.stdout.readline().strip().rsplit(":", 1)[1]
        nodes = f"tcp:10.0.2.2:{port}"
        done = place.guest("--nodes", nodes, "--", "penstock", "devices", "--no-local")
        assert done.returncode == 0 and nodes in done.stdout, f"{done.stdout}{done.stderr}"
    finally:
        daemon.terminate()
        daemon.wait()
    refused = place.guest("--nodes", "local", "--", "true")
    assert refused.returncode == 125 and "no Unix socket" in refused.stderr, refused.stderr


def what_fails_has_its_status(place, failures):
    """The statuses of failures are those of `env`, and the messages have the reason."""
    need_guests()
    # Two cases of one run use this.
    broken = Path(tempfile.mkdtemp(prefix="broken.", dir=place.folder))
    (broken / "boot").mkdir()
    kernel = next((KERNEL / "boot").glob("vmlinuz-*"))
    (broken / "boot" / kernel.name).write_text("no kernel")
    (broken / "lib").symlink_to(KERNEL / "lib")
    for arguments, image, status, reason in failures:
        done = place.guest(*arguments, image=broken if image == "broken" else image)
        said = f"{arguments}: {done.returncode}: {done.stderr}"
        assert done.returncode == status and reason in done.stderr and not done.stdout, said


FAILURES = [
    (("--", "no-such-program"), KERNEL, 127, "no-such-program"),
    (("--", "sleep", "60"), "broken", 125, "linux kernel too old"),
    (("--", "sleep", "60"), "/etc", 125, "/etc/boot"),
]
# Each of them boots a guest.
MORE_FAILURES = [
    (("--", "/etc/passwd"), KERNEL, 126, "in the guest: /etc/passwd"),
    (("--timeout", "1", "--", "sleep", "60"), KERNEL, 124, "longer than 1 s"),
    (("--memory", "64", "--", "sleep", "60"), KERNEL, 125, "needs at least"),
]


def a_guest_that_panics_is_an_error(place):
    """The end of the console is shown."""
    need_guests()
    done = place.guest("--", "/bin/sh", "-c", "echo c >/proc/sysrq-trigger; sleep 60")
    assert done.returncode == 125, f"{done.returncode}: {done.stderr}"
    assert "ended before its program" in done.stderr, done.stderr
    assert "Kernel panic" in done.stderr, done.stderr


def nothing_is_left(place, by):
    """Whatever ends the command: its processes and its folders go."""
    need_guests("shm")
    # Other runs of this user may have some.
    before = place.left_in_memory()
    command = [PENSTOCK, "vm", "run", "--transport", "shm", KERNEL]
    process = subprocess.Popen(
        [*command, "--", "sh", "-c", "echo up; sleep 1000"],
        env=place.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    roll = Roll()
    try:
        line = process.stdout.readline()
        assert line == b"up\n", line
        roll.add(*tree(process.pid))
        assert len(roll.began) > 2 and place.left(), f"{roll.began}, {place.left()}"
        mine = place.left_in_memory() - before
        assert any((path / "memory").is_file() for path in mine), mine
        process.send_signal(by)
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()

    def rest():
        return [*roll.left(), *place.left(), *(place.left_in_memory() & mine)]

    wait_for(lambda: not rest(), lambda: f"left: {rest()}")


class Case:
    def __init__(self, name, act, *arguments, lane="test"):
        self.name, self.act, self.arguments, self.lane = name, act, arguments, lane


def cases(transports):
    """Yields all cases. Each boots a guest, which takes some seconds of both cores."""
    for transport in transports:
        yield Case(
            f"three programs over {transport}, without root", same_results_without_root, transport
        )
    yield Case("input, output and status", input_output_and_status)
    yield Case("nodes that run already", nodes_that_run_already, lane="all")
    yield Case("what fails has its status", what_fails_has_its_status, FAILURES)
    more = "more that fails has its status"
    yield Case(more, what_fails_has_its_status, MORE_FAILURES, lane="all")
    panic = "a guest that panics is an error"
    yield Case(panic, a_guest_that_panics_is_an_error, lane="all")
    yield Case("nothing is left after SIGKILL", nothing_is_left, signal.SIGKILL)
    yield Case("nothing is left after SIGTERM", nothing_is_left, signal.SIGTERM, lane="all")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transport", action="append", choices=TRANSPORTS)
    parser.add_argument("case", nargs="*", help="parts of the names of the cases")
    arguments = parser.parse_args()
    known = list(cases(arguments.transport or TRANSPORTS))
    wanted = chosen(known, arguments.case, lambda case: case.name)
    place, count = Place(), Tally("guests")
    count.plan(len(wanted))
    try:
        for case in wanted:
            with count.case(f"guests/{case.name}", 2 * CASE_S):
                case.act(place, *case.arguments)
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)
    return count.end()


if __name__ == "__main__":
    sys.exit(main())

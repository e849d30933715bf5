#!/usr/bin/env python3
"""What the libraries and the command tell the user: each node that is left out or lost, a pool
without devices, a wrong setting.

    tests/notices/run.py [PART OF A NAME...]

Prints one line per case. If nothing is wrong, the libraries must print nothing.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))
from patience import PATIENCE_S, chosen, wait_for
from tally import Skipped, Tally

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BIN = Path(os.environ.get("PENSTOCK_BIN", TARGET / "release"))
LIBRARIES = {
    "opencl": "libOpenCL.so.1",
    "cuda": str(BIN / "cuda/libcuda.so.1"),
    "nvml": str(BIN / "cuda/libnvidia-ml.so.1"),
}


class Place:
    """A folder for daemons and their clients, without any configuration from the environment."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-notices."))
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PENSTOCK_", "SLURM_"))
        }
        self.env |= {
            "HOME": str(self.folder),
            "XDG_RUNTIME_DIR": str(self.folder),
            # What these tests check does not depend on it, and drivers compile less.
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            "PENSTOCK_KEY": str(self.folder / "key"),
        }
        self.env["PENSTOCK_LIB"] = str(BIN / "libpenstock_opencl.so")
        self.env.pop("XDG_CONFIG_HOME", None)
        vendors = self.folder / "vendors"
        vendors.mkdir()
        (vendors / "penstock.icd").write_text(f"{BIN / 'libpenstock_opencl.so'}\n")
        self.icd = {"OCL_ICD_VENDORS": str(vendors), "OPENCL_VENDOR_PATH": str(vendors)}
        self.daemons = []
        subprocess.run(
            [BIN / "penstock", "key", "--create"],
            env=self.env,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def serve(self, *listen, **variables):
        """Starts a daemon. Returns it and its address."""
        listen = [word for address in listen for word in ("--listen", address)]
        daemon = subprocess.Popen(
            [BIN / "penstock", "serve", *listen],
            env=self.env | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.daemons.append(daemon)
        return daemon, daemon.stdout.readline().strip().removeprefix("listening on ")

    def client(self, kind, *more, **variables):
        library = LIBRARIES[kind]
        if kind != "opencl" and not Path(library).exists():
            raise Skipped(f"{library} is not built")
        command = [sys.executable, HERE / "client.py", kind, library, *more]
        return subprocess.Popen(
            command,
            env=self.env | self.icd | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words, program=("sh", "-c", "echo started"), **variables):
        """Runs `penstock run` with a program that prints `started`, or with another one."""
        command = [BIN / "penstock", "run", *words, "--", *program]
        return subprocess.run(
            command, env=self.env | variables, capture_output=True, text=True, timeout=PATIENCE_S
        )

    def close(self):
        for daemon in self.daemons:
            daemon.send_signal(signal.SIGCONT)
            daemon.kill()
            daemon.wait()
            daemon.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def said(process, word):
    """Waits until a client ends by itself with `word` as its last output. Returns the lines of its
    standard error."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and out.split()[-1:] == [word], (
        f"exit {process.returncode}: {out}{err}"
    )
    return err.splitlines()


def one(lines, *parts):
    assert (
        len(lines) == 1
        and lines[0].startswith("penstock: ")
        and all(part in lines[0] for part in parts)
    ), f"{parts} in: {lines}"


def nothing_where_nothing_is_wrong(place, kind):
    _, address = place.serve(f"unix:{place.folder}/node.sock")
    assert said(place.client(kind, PENSTOCK_NODES=address), "pool") == []
    # A host without a pool is no error, and a worker must not see the pool.
    quiet = said(place.client(kind), "nothing") + said(
        place.client(kind, PENSTOCK_NODES=address, PENSTOCK_WORKER="1"), "nothing"
    )
    assert kind == "nvml" or quiet == [], quiet


def a_wrong_configuration(place, kind):
    one(
        said(place.client(kind, PENSTOCK_NODES="gpu01"), "nothing"),
        "variable PENSTOCK_NODES: `gpu01` is not the address",
    )
    one(
        said(place.client(kind, PENSTOCK_NODES="local", PENSTOCK_PLATFORMS="all"), "nothing"),
        "variable PENSTOCK_PLATFORMS: `all`",
    )
    config = place.folder / ".config/penstock"
    config.mkdir(parents=True)
    (config / "pool.toml").write_text("nodes = []\ntimeot_ms = 3\n")
    one(said(place.client(kind), "nothing"), "pool.toml:2: ")


def a_node_that_is_not_there(place, kind):
    _, address = place.serve(f"unix:{place.folder}/node.sock")
    nobody = f"unix:{place.folder}/nobody.sock"
    one(
        said(place.client(kind, PENSTOCK_NODES=f"{nobody},{address}"), "pool"),
        f"node {nobody} is left out: ",
        "no daemon has made this socket (penstock serve)",
    )
    # NVML also works without devices.
    one(
        said(place.client(kind, PENSTOCK_NODES=nobody), "pool" if kind == "nvml" else "nothing"),
        f"node {nobody} is left out: ",
    )


def an_own_daemon_that_is_gone(place, kind):
    """A daemon that was killed leaves its socket. Nobody has named it, so nobody hears of it."""
    own = place.folder / "run/penstock"
    own.mkdir(mode=0o700, parents=True)
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(own / "penstockd.sock"))
    pool = "pool" if kind == "nvml" else "nothing"
    assert said(place.client(kind, XDG_RUNTIME_DIR=f"{place.folder}/run"), pool) == []
    named = {"PENSTOCK_NODES": "local", "XDG_RUNTIME_DIR": f"{place.folder}/run"}
    one(said(place.client(kind, **named), pool), "is left out: ", "no daemon listens there")


def a_node_that_is_late(place, kind):
    daemon, address = place.serve(f"unix:{place.folder}/node.sock")
    assert said(place.client(kind, PENSTOCK_NODES=address), "pool") == []
    daemon.send_signal(signal.SIGSTOP)
    lines = said(
        place.client(kind, PENSTOCK_NODES=address, PENSTOCK_TIMEOUT_MS="20"),
        "pool" if kind == "nvml" else "nothing",
    )
    one(lines, f"node {address} is left out: ", "PENSTOCK_TIMEOUT_MS is 20")
    run = place.run("--no-local", "--nodes", address, PENSTOCK_TIMEOUT_MS="20")
    lines = run.stderr.splitlines()
    assert run.returncode == 125 and run.stdout == "" and len(lines) == 2, (
        f"{run.returncode}: {run.stdout}{run.stderr}"
    )
    assert "is missing" in lines[0] and "no node of the pool answers" in lines[1], run.stderr


def a_key_that_is_not_there(place, kind):
    """A pool over TCP needs the key. The messages must say what is wrong with the file, and which
    node is left out."""
    _, unix = place.serve(f"unix:{place.folder}/node.sock")
    _, tcp = place.serve("tcp:127.0.0.1:0")
    lines = said(
        place.client(kind, PENSTOCK_NODES=f"{unix},{tcp}", PENSTOCK_KEY="/nonexistent/key"), "pool"
    )
    one(lines[:1], "the key file /nonexistent/key")
    one(lines[1:], f"node {tcp} is left out: ", "key")
    # A daemon without devices, beside one with devices, is named once, also under `penstock run`.
    _, empty = place.serve(f"unix:{place.folder}/empty.sock", PENSTOCK_LIBOPENCL="libc.so.6")
    command = f"{sys.executable} {HERE / 'client.py'} {kind} {LIBRARIES[kind]}".split()
    run = place.run("--no-local", "--nodes", f"{unix},{empty}", program=command)
    assert run.returncode == 0 and run.stdout == "pool\n", (
        f"{run.returncode}: {run.stdout}{run.stderr}"
    )
    one(run.stderr.splitlines(), f"node {empty} has no devices")


def a_query_that_selects_nothing(place, kind):
    _, address = place.serve(f"unix:{place.folder}/node.sock")
    query = {"PENSTOCK_DEVICES": "SELECT WHERE name = 'no such device'"}
    lines = said(
        place.client(kind, PENSTOCK_NODES=address, **query), "pool" if kind == "nvml" else "nothing"
    )
    one(lines, "PENSTOCK_DEVICES selects none of the pool's")
    run = place.run("--no-local", "--nodes", address, **query)
    assert run.returncode == 125 and run.stdout == "", f"{run.returncode}: {run.stdout}"
    one(run.stderr.splitlines(), "PENSTOCK_DEVICES selects none of the pool's")


def a_node_without_devices(place, kind):
    _, address = place.serve(f"unix:{place.folder}/node.sock", PENSTOCK_LIBOPENCL="libc.so.6")
    lines = said(
        place.client(kind, PENSTOCK_NODES=address), "pool" if kind == "nvml" else "nothing"
    )
    one(lines, f"node {address} has no devices")
    run = place.run("--no-local", "--nodes", address)
    assert run.returncode == 125 and run.stdout == "", f"{run.returncode}: {run.stdout}"
    assert "has no devices: " in run.stderr and run.stderr.endswith(
        "penstock: the pool has no devices\n"
    ), run.stderr


def a_node_that_is_lost(place):
    """The end of the daemon or of the worker is reported once. A normal end is not reported."""
    for lost in ("daemon", "worker", None):
        daemon, address = place.serve(f"unix:{place.folder}/{lost}.sock")
        client = place.client("opencl", "wait", PENSTOCK_NODES=address)
        assert [client.stdout.readline().strip() for _ in range(2)] == ["pool", "ready"]
        if lost == "daemon":
            daemon.kill()
            daemon.wait()
        elif lost == "worker":
            status = subprocess.run(
                [BIN / "penstock", "status", "--json", "--nodes", address],
                env=place.env,
                capture_output=True,
                text=True,
                check=True,
            )
            os.kill(int(re.search(r'"worker": (\d+)', status.stdout)[1]), signal.SIGKILL)
        client.stdin.write("\n")
        client.stdin.flush()
        lines = said(client, "failed" if lost else "worked")
        if lost:
            one(lines, f"node {socket.gethostname()} ({address}) is lost: ")
        else:
            assert lines == [], lines


CRASH = """
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
int main(void) {
    const char *source = "kernel void tame(global int *a) { a[0] = 1; }"
                         "kernel void wild(ulong at) { *(global int *)at = 1; }";
    cl_platform_id platform;
    cl_device_id device;
    clGetPlatformIDs(1, &platform, NULL);
    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL);
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, NULL, NULL);
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, NULL);
    clBuildProgram(program, 1, &device, "", NULL, NULL);
    cl_kernel kernel = clCreateKernel(program, "wild", NULL);
    cl_ulong at = 64;
    size_t one = 1;
    clSetKernelArg(kernel, 0, sizeof at, &at);
    clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
    return clFinish(queue) == CL_SUCCESS ? 9 : 7;
}
"""


def a_kernel_that_crashes_its_worker(place):
    """The line names the signal, the kernel and what helps, and the daemon's log is kept."""
    (place.folder / "crash.c").write_text(CRASH)
    program = place.folder / "crash"
    subprocess.run(["cc", "-o", program, place.folder / "crash.c", "-lOpenCL"], check=True)
    run = place.run(program=[program])
    assert run.returncode == 7, f"{run.returncode}: {run.stderr}"
    one(run.stderr.splitlines(), "is lost: ", "(SIGSEGV); ", "first: `wild`; `oclgrind PROGRAM`")
    runs = place.folder / "penstock"
    wait_for(lambda: not list(runs.glob("run-*/")), "the end of the guard")
    [log] = runs.glob("run-*.log")
    assert "a fault ends the worker" in log.read_text(), log.read_text()
    # Without a fault nothing is kept.
    assert place.run().stdout == "started\n"
    wait_for(lambda: not list(runs.glob("run-*/")), "the end of the guard")
    assert len(list(runs.iterdir())) == 1, list(runs.iterdir())


def a_program_that_waits_in_line(place):
    """A program that waits in line says so after a second, and goes on in its turn."""
    slow = place.folder / "slow.c"
    slow.write_text(
        "#include <unistd.h>\n__attribute__((constructor)) static void f(void) { sleep(3); }\n"
    )
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", place.folder / "libslow.so", slow, "-lOpenCL"], check=True
    )
    _, address = place.serve(
        f"unix:{place.folder}/node.sock", LD_PRELOAD=str(place.folder / "libslow.so")
    )
    one(
        said(place.client("opencl", PENSTOCK_NODES=address), "pool"),
        f"node {address} is busy: this program waits in line for it, at place 1",
    )


def command(place, *words, **variables):
    return subprocess.run(
        [BIN / "penstock", *words],
        env=place.env | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def a_command_that_is_mistyped_or_asks_in_vain(place):
    """Each message says what happened and what to do, and the exit status says so to scripts."""
    _, address = place.serve(f"unix:{place.folder}/node.sock")
    # Nobody can listen on a port that another socket is bound to.
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    closed = f"tcp:127.0.0.1:{taken.getsockname()[1]}"
    devices = ("devices", "--no-local", "--nodes")
    for status, words, part in [
        (2, ("run", "--node", "x", "--", "true"), "penstock run has no such option; is --nodes"),
        (2, ("energy", "--jsn", "--", "true"), "energy has no such option; is --json meant"),
        (127, ("energy", "--idle", "0", "--", "no-such-one"), "no-such-one: there is no such"),
        (2, (*devices, "gpu01"), "for a host, write tcp:gpu01 or ssh:gpu01"),
        (2, (*devices, "gpu01:7367"), "for a host, write tcp:gpu01:7367 or ssh:gpu01"),
        (3, (*devices, closed), "no daemon listens there (penstock serve)"),
        (3, (*devices, "tcp:no-such-host.invalid"), "is the address right?"),
        (3, (*devices, address, "SELECT WHERE name = 'none'"), "the query selects none"),
        (0, ("status", "--nodes", address), ""),
        (1, ("status", "--nodes", f"{address},{closed}"), "1 of the pool's 2 nodes do not answer"),
    ]:
        done = command(place, *words)
        assert done.returncode == status, f"{words}: exit {done.returncode}: {done.stderr}"
        assert part in done.stderr, f"{words}: {done.stderr}"
    taken.close()


def a_pool_file_with_a_wrong_node(place):
    """A mistake in the list of nodes concerns only those who use the list."""
    _, address = place.serve(f"unix:{place.folder}/node.sock")
    config = place.folder / ".config/penstock"
    config.mkdir(parents=True)
    (config / "pool.toml").write_text('nodes = ["gpu01"]\n')
    one(command(place, "devices").stderr.splitlines(), "pool.toml:1: `gpu01` is not the address")
    run = place.run("--no-local", "--nodes", address)
    assert (run.returncode, run.stdout, run.stderr) == (0, "started\n", ""), run
    _, other = place.serve(f"unix:{place.folder}/other.sock")
    assert other.startswith("unix:"), other


def a_key_that_appears_later(place):
    """A daemon without the pool's key says so, and reads the key when it is there."""
    (place.folder / "key").unlink()
    del place.env["PENSTOCK_KEY"]
    log = open(place.folder / "daemon.log", "w+")
    daemon = subprocess.Popen(
        [BIN / "penstock", "serve", "--listen", "tcp:127.0.0.1:0"],
        env=place.env,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    place.daemons.append(daemon)
    address = daemon.stdout.readline().strip().removeprefix("listening on ")
    said_so = (place.folder / "daemon.log").read_text()
    assert "nobody is let in over TCP and vsock" in said_so, said_so
    ask = ("devices", "--no-local", "--nodes", address)
    assert command(place, *ask).returncode == 3
    assert command(place, "key", "--create").returncode == 0
    there = command(place, *ask)
    assert there.returncode == 0 and there.stderr == "", there
    assert "the pool's key is there now" in (place.folder / "daemon.log").read_text()
    log.close()


KINDS = [
    nothing_where_nothing_is_wrong,
    a_wrong_configuration,
    a_node_that_is_not_there,
    an_own_daemon_that_is_gone,
    a_node_that_is_late,
    a_key_that_is_not_there,
    a_query_that_selects_nothing,
    a_node_without_devices,
]
ONCE = [
    a_node_that_is_lost,
    a_kernel_that_crashes_its_worker,
    a_program_that_waits_in_line,
    a_command_that_is_mistyped_or_asks_in_vain,
    a_pool_file_with_a_wrong_node,
    a_key_that_appears_later,
]
CASES = [(f"{case.__name__} {kind}", case, (kind,)) for case in KINDS for kind in LIBRARIES]
CASES += [(case.__name__, case, ()) for case in ONCE]


def main():
    if not (BIN / "penstock").exists():
        sys.exit(f"no penstock in {BIN}: run `make build` first")
    cases = chosen(CASES, sys.argv[1:], lambda case: case[0].replace("_", " "))
    count = Tally("notices")
    count.plan(len(cases))
    for name, case, more in cases:
        place = Place()
        with count.case(f"notices/{name.replace('_', ' ')}"):
            case(place, *more)
        place.close()
    return count.end()


sys.exit(main())
